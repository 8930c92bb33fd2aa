"""The test cluster itself, and init and doctor on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_user import ROOT

from slurm.doctor import accounting
from slurm.site import load
from slurm.testcluster import TestCluster, daemons

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


def slurm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slurm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=ROOT)


def test_a_second_start_does_nothing(on_cluster: TestCluster) -> None:
    pid = (on_cluster.folder / "run" / "slurmctld.pid").read_text()
    assert on_cluster.start() is False
    assert (on_cluster.folder / "run" / "slurmctld.pid").read_text() == pid
    shown = slurm("testcluster", "status", "--folder", str(on_cluster.folder))
    assert shown.returncode == 0
    assert shown.stdout.count("vnode") == 8  # four nodes in two partitions


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    assert slurm("testcluster", "status", "--folder", str(tmp_path)).stdout == "not running\n"
    assert slurm("testcluster", "stop", "--folder", str(tmp_path)).stdout == "was not running\n"


def test_stale_pid_files_do_not_matter(cluster: TestCluster, tmp_path: Path) -> None:
    other = TestCluster(tmp_path / "other", nodes=1, accounting=False)
    (other.folder / "run").mkdir(parents=True)
    (other.folder / "run" / "slurmctld.pid").write_text("1\n")  # another program's
    (other.folder / "run" / "slurmd-vnode1.pid").write_text("\n")
    try:
        assert other.start() is True
        assert other.settings.port not in cluster.settings.ports
    finally:
        assert other.stop() is True
    assert cluster.running()


def test_init_writes_a_site_file_that_loads(on_cluster: TestCluster, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    assert slurm("init", "--output", str(path)).returncode == 0
    site, _ = load(path)
    assert (site.partition, site.cpus_per_task) == ("main", 4)
    again = slurm("init", "--output", str(path))
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_doctor_passes_here_and_names_what_is_wrong_elsewhere(
    on_cluster: TestCluster, tmp_path: Path
) -> None:
    here = slurm("doctor", "--results", str(tmp_path / "results"))
    assert here.returncode == 0, here.stdout + here.stderr
    for name in ("shared file system", "Python on the compute nodes", "internet", "PMI and collectives"):
        assert name in here.stdout
    assert "2 ranks on vnode" in here.stdout

    assert "note  GPUs on the compute nodes: asked for 1, but vnode1 has no NVIDIA driver" in here.stdout

    site = tmp_path / "site.yaml"
    site.write_text("constraint: none_such\n")
    refused = slurm("doctor", "--results", str(tmp_path / "results"), "--site", str(site))
    assert refused.returncode == 1
    assert "FAIL  one-task job: sbatch refuses: " in refused.stdout
    assert "Traceback" not in refused.stdout + refused.stderr

    site.write_text("setup: ['echo no such module >&2; exit 1']\n")
    broken = slurm("doctor", "--results", str(tmp_path / "results"), "--site", str(site))
    assert broken.returncode == 1
    assert "FAIL  one-task job" in broken.stdout
    assert "fix: its log ends: no such module" in broken.stdout


def test_a_database_that_is_down_is_noticed_and_started_again(on_cluster: TestCluster) -> None:
    pid = int((on_cluster.folder / "run" / "slurmdbd.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    assert daemons.wait_until(lambda: not on_cluster.running(), seconds=30, step=0.3)
    check = accounting()
    assert check.ok is False
    assert "does not answer" in check.found
    controller = (on_cluster.folder / "run" / "slurmctld.pid").read_text()
    assert on_cluster.start() is True
    assert accounting().ok is True
    assert (on_cluster.folder / "run" / "slurmctld.pid").read_text() == controller  # jobs went on
