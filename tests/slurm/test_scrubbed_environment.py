"""What the shell exports for Slurm's commands decides nothing about a sweep."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User
from some_blocks import block

from slurm import client, jobs, plan, submit
from slurm.environment import KEPT, scrubbed
from slurm.folder import SweepFolder
from slurm.site import Site

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = {
    "SBATCH_TIMELIMIT": "1", "SBATCH_PARTITION": "high", "SBATCH_NO_REQUEUE": "1", "SBATCH_ARRAY_INX": "0-9",
    "SBATCH_EXPORT": "NONE", "SLURM_TIME_FORMAT": "relative", "SQUEUE_STATES": "COMPLETED",
    "SQUEUE_FORMAT": "%i", "SCANCEL_INTERACTIVE": "1", "SINFO_PARTITION": "none", "SACCT_FEDERATION": "1",
    "SCONTROL_FUTURE": "1", "SALLOC_ACCOUNT": "x", "SRUN_EXPORT_ENV": "NONE", "SLURM_EXPORT_ENV": "NONE",
    "SLURM_JOB_ID": "999", "SLURM_MEM_PER_NODE": "100", "SLURM_NTASKS": "3", "SLURM_CLUSTERS": "other",
}  # fmt: skip
"""Documented variables of every client, and those that an interactive allocation leaves in a shell."""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell full of them, and clients that note their environment."""
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_CONF", "/somewhere/slurm.conf")
    monkeypatch.setenv("MY_DATA", "/data")
    text = '#!/bin/sh\nenv > "$NOTED/$(basename $0)"\necho Submitted batch job 7\n'
    for name in ("sbatch", "squeue", "scancel", "sinfo", "sacct", "sacctmgr", "scontrol"):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    noted = tmp_path / "noted"
    noted.mkdir()
    monkeypatch.setenv("NOTED", str(noted))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return noted


def seen(noted: Path, name: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (noted / name).read_text().splitlines() if "=" in line)


def test_no_client_inherits_an_option_and_all_know_the_cluster(shell: Path) -> None:
    for name in ("sbatch", "squeue", "scancel", "sinfo", "sacct", "sacctmgr", "scontrol"):
        client.call(name)
        found = seen(shell, name)
        assert not set(found) & set(HOSTILE)
        assert (found["SLURM_CONF"], found["MY_DATA"]) == ("/somewhere/slurm.conf", "/data")


def test_a_submission_inherits_none_and_the_shell_keeps_its_own(shell: Path, tmp_path: Path) -> None:
    folder = SweepFolder.create(tmp_path / "results", "e", "s")
    wanted = submit.planned([block()], Site(), submit.Options(), max_array_size=10)
    folder.describe(wanted.blocks, {})
    folder.code.mkdir()
    said: list[str] = []
    submit.submit(folder, wanted, Site(), said.append)
    found = seen(shell, "sbatch")
    assert not set(found) & set(HOSTILE)
    assert found["MY_DATA"] == "/data"  # what is not Slurm's reaches the jobs
    assert HOSTILE.items() <= os.environ.items()


def test_srun_passes_the_jobs_environment_and_cores_on_whatever_the_job_was_told() -> None:
    one = plan.request(block(), Site())
    site = Site(cpus_per_task=3)
    command = plan.step_command(site, one, "python", output="o", error="e", code=Path("/c"))
    assert {"--export=ALL", "--cpus-per-task=3"} <= set(command)


def test_what_says_where_the_cluster_is_stays() -> None:
    assert scrubbed(dict.fromkeys(KEPT, "x") | HOSTILE | {"SLURPED": "1"}) == dict.fromkeys(
        [*KEPT, "SLURPED"], "x"
    ) | {"SLURPED": "1"}


def test_no_other_module_starts_a_client_by_itself() -> None:
    """One gate: :mod:`slurm.client` starts clients, and submitit sbatch; steps have what their job has."""
    clients = {"sbatch", "squeue", "scancel", "sinfo", "sacct", "sacctmgr", "scontrol", "salloc"}
    found = []
    for path in sorted((ROOT / "slurm").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.List) or not node.elts:
                continue
            first = node.elts[0]
            if isinstance(first, ast.Constant) and first.value in clients:
                found.append(f"{path.name}:{node.lineno}")
    assert json.dumps(found) == "[]"


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_a_sweep_from_such_a_shell_runs_as_the_site_file_says(user: User) -> None:
    user.settings(cpus_per_task=2, sbatch={"time": "0:04:00", "requeue": False})
    done = user.run(*TWO_RANKS, "iterations=2", "measured=1", **HOSTILE)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = user.folder.jobs()
    assert job.request.minutes == 4
    found = jobs.details(job.job)
    assert (found["Partition"], found["TimeLimit"], found["Requeue"]) == ("main", "00:04:00", "0")
    (cell,) = user.folder.names
    assert [record.status for record in user.records(cell)] == ["ok"]
