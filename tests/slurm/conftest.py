"""The test cluster, and sweeps on it as a user starts them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_user import User

from slurm import client
from slurm.testcluster import TestCluster


def missing() -> list[str]:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    programs = ("slurmctld", "slurmd", "sbatch", "munged", "slurmdbd", "mariadbd")
    return [name for name in programs if not shutil.which(name, path=path)]


WITHOUT = "the Slurm cluster's tests are skipped"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line, however many tests it is about."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    mine = [reason for reason in reasons if WITHOUT in reason]
    if mine:
        text = mine[0].partition(WITHOUT)[2].strip("'\")")
        terminalreporter.write_line(f"{WITHOUT} ({len(mine)}){text}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A running test cluster with accounting; stopped at the end of the session."""
    reason = ""
    if absent := missing():
        reason = f"no Slurm here ({', '.join(absent)}): slurm/testcluster/install"
    elif os.geteuid() != 0:
        reason = "the Slurm test cluster needs root"
    if reason:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must not skip: {reason}")
        pytest.skip(f"{WITHOUT}: {reason}")
    made = TestCluster(tmp_path_factory.mktemp("cluster"))
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def on_cluster(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """This process's Slurm commands talk to the test cluster; its jobs are gone afterwards."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(cluster.configuration))
    client.configuration.cache_clear()
    yield cluster
    cluster.client("scancel", "-u", "root", check=False)


@pytest.fixture
def user(on_cluster: TestCluster, tmp_path: Path) -> Iterator[User]:
    made = User(results=tmp_path / "results", site=tmp_path / "site.yaml")
    made.settings()
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
