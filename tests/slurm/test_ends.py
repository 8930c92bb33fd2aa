"""Ends that the sweep's own jobs cannot write down, on the test cluster."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User, wait_for

from experiments.records.record import Status
from slurm.testcluster import TestCluster, daemons

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

FAULTS = Path(__file__).parent / "faults"


def hang(user: User, *seeds: int, **site: object) -> None:
    """Let ranks of these seeds hang in their fourth iteration."""
    there = {"rank": 1, "iteration": 3, "position": 1, "kind": "hang"}
    user.settings(
        environment={"BITPIPE_TEST_FAULTS": json.dumps(dict.fromkeys(seeds, there))},
        setup=[f'export PYTHONPATH="{FAULTS}:$PYTHONPATH"'],
        **site,
    )


def supervisor(job: str) -> int:
    """The process that runs a job's batch step."""
    for pid in daemons.with_environment(f"SLURM_ARRAY_JOB_ID={job.partition('_')[0]}"):
        if b"submitit.core._submit" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise LookupError(job)


def test_a_throttled_array_is_cancelled_by_its_user_and_a_supervisor_is_killed(
    user: User, on_cluster: TestCluster
) -> None:
    hang(user, 1, parallel=1)
    waits = user.start(*TWO_RANKS, "seed=1,2,3", "pack=false", "watchdog_s=600")
    wait_for(lambda: list((user.results / "slurm").glob("*/*/jobs.jsonl")) and user.folder.jobs())
    cell = {seed: user.cell_of_seed(seed) for seed in (1, 2, 3)}
    wait_for(lambda: user.logged(cell[1], "fault"))
    os.kill(supervisor(user.job_of(cell[1])), signal.SIGKILL)
    on_cluster.client("scancel", "--state=PENDING", "-u", "root")
    text = waits.communicate(timeout=280)[0]
    assert waits.returncode == 1, text
    assert "3 cells: 1 failed, 2 cancelled" in text
    (killed,) = user.records(cell[1])
    assert (killed.status, killed.cause.signal) == (Status.FAILED, "SIGKILL")
    for seed in (2, 3):
        (record,) = user.records(cell[seed])
        assert record.status is Status.CANCELLED
        assert "was cancelled by user" in record.cause.message
    assert sorted(line.split()[0] for line in text.splitlines() if line.startswith("[")) == [
        "[1/3]",
        "[2/3]",
        "[3/3]",
    ]


def test_why_the_canary_failed_is_what_the_terminal_says(user: User) -> None:
    """As on a cluster of GPUs whose jobs see none."""
    done = user.run(*TWO_RANKS, "backend=cuda", "method=bitpipe,bitpipe_without_e", "pack=false")
    assert done.returncode == 1
    assert done.stdout.count("its canary failed: node vnode1: backend=cuda, but this job sees no CUDA") >= 2


@pytest.mark.slow
def test_a_longer_limit_that_is_granted_counts(user: User, on_cluster: TestCluster) -> None:
    """The rank hangs past the first limit, until the watchdog finds it."""
    hang(user, 1, minutes_per_cell=0.5, startup_minutes=0.5)
    waits = user.start(*TWO_RANKS, "seed=1", "watchdog_s=90")
    wait_for(lambda: list((user.results / "slurm").glob("*/*/jobs.jsonl")) and user.folder.jobs())
    cell = user.cell_of_seed(1)
    wait_for(lambda: user.logged(cell, "fault"), seconds=50)
    on_cluster.client("scontrol", "update", f"JobId={user.job_of(cell)}", "TimeLimit=5")
    waits.communicate(timeout=280)
    (record,) = user.records(cell)
    assert (record.status, record.cause.kind) == (Status.TIMEOUT, "watchdog")


def test_with_every_node_drained_a_sweep_still_queues(user: User, on_cluster: TestCluster) -> None:
    names = on_cluster.settings.node_names
    on_cluster.client("scontrol", "update", f"NodeName={','.join(names)}", "State=DRAIN", "Reason=test")
    try:
        done = user.run(*TWO_RANKS, "wait=false")
        assert done.returncode == 0, done.stderr
        assert "1 pending" in user.slurm("status").stdout
    finally:
        on_cluster.client("scontrol", "update", f"NodeName={','.join(names)}", "State=RESUME")
    collected = user.slurm("collect", "--wait")
    assert "1 ok" in collected.stdout, collected.stdout + collected.stderr
