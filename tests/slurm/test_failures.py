"""One sweep in which everything goes wrong that can go wrong on a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User, wait_for

from experiments.records.record import Record, Status
from slurm.jobs import details
from slurm.testcluster import TestCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

FAULTS = Path(__file__).parent / "faults"
FINE, RAISES, KILLED, MEMORY, SLOW, CANCELLED, PREEMPTED, NODE = SEEDS = range(1, 9)
"""Seeds of the cells: one job of two ranks each, and each on a node of its own."""

WITHIN_S = 60.0


@pytest.fixture
def broken(user: User) -> User:
    """Ranks of some seeds break in their fourth iteration, the first time their job runs."""
    there = {"rank": 1, "iteration": 3, "position": 1}
    faults = {
        RAISES: {**there, "kind": "raise"},
        KILLED: {**there, "kind": "kill"},
        MEMORY: {**there, "kind": "memory"},
        **{seed: {**there, "kind": "hang"} for seed in (SLOW, CANCELLED, PREEMPTED, NODE)},
    }
    user.settings(
        mem_per_cpu="16000M",  # half a node's
        minutes_per_cell=10,
        environment={"BITPIPE_TEST_FAULTS": json.dumps(faults)},
        setup=[f'export PYTHONPATH="{FAULTS}:$PYTHONPATH"'],
    )
    return user


def test_every_failure_has_its_status_and_first_cause_and_the_others_finish(
    broken: User, on_cluster: TestCluster
) -> None:
    seeds = ",".join(map(str, SEEDS))
    done = broken.run(*TWO_RANKS, f"seed={seeds}", "pack=false", "watchdog_s=600", "wait=false")
    assert done.returncode == 0, done.stdout + done.stderr
    cell = {seed: broken.cell_of_seed(seed) for seed in SEEDS}
    job = {seed: broken.job_of(id) for seed, id in cell.items()}
    waits = broken.slurm_start("collect", "--wait")

    def ended(seed: int, attempt: int = 1) -> Record | None:
        return next((r for r in broken.records(cell[seed]) if r.attempt == attempt), None)

    def hangs(seed: int) -> bool:
        return broken.logged(cell[seed], "fault")

    def strike(seed: int, *command: str) -> None:
        wait_for(lambda: hangs(seed), why=f"seed {seed} runs: {broken.folder.path}")
        on_cluster.client(*command)

    strike(SLOW, "scontrol", "update", f"JobId={job[SLOW]}", "TimeLimit=1")
    strike(CANCELLED, "scancel", job[CANCELLED])
    assert wait_for(lambda: ended(CANCELLED)) < WITHIN_S
    wait_for(lambda: hangs(PREEMPTED))
    node = details(job[PREEMPTED])["NodeList"]
    urgent = ["sbatch", "-p", "high", "-w", node, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2"]
    on_cluster.client(*urgent)
    assert wait_for(lambda: ended(PREEMPTED)) < WITHIN_S
    wait_for(lambda: hangs(NODE))
    node = details(job[NODE])["NodeList"]
    on_cluster.kill_node(node)
    assert wait_for(lambda: ended(NODE)) < WITHIN_S
    on_cluster.revive_node(node)
    text = waits.communicate(timeout=280)[0]

    assert ended(FINE).status is Status.OK

    assert ended(RAISES).status is Status.FAILED
    assert ended(RAISES).cause.rank == 1
    assert "RuntimeError: injected fault" in ended(RAISES).cause.traceback

    assert ended(KILLED).status is Status.FAILED
    assert (ended(KILLED).cause.rank, ended(KILLED).cause.signal) == (1, "SIGKILL")

    assert ended(MEMORY).status is Status.FAILED  # of the host: no result
    assert ended(MEMORY).cause.kind == "memory"

    assert ended(SLOW).status is Status.TIMEOUT
    assert "time limit" in ended(SLOW).cause.message
    assert ended(CANCELLED).status is Status.CANCELLED

    assert ended(PREEMPTED).status is Status.PREEMPTED
    assert ended(PREEMPTED, 2).status is Status.OK
    assert ended(NODE).status is Status.FAILED
    assert node in ended(NODE).cause.message
    assert ended(NODE, 2).status is Status.OK

    assert "[8/8]" in text
    assert "3 ok, 3 failed, 1 timeout, 1 cancelled" in text

    broken.settings()  # mended
    again = broken.slurm("requeue", "--only", "failed")
    assert "6 ok, 1 timeout, 1 cancelled" in again.stdout
    attempts = {seed: len(broken.records(cell[seed])) for seed in SEEDS}
    assert attempts == {**dict.fromkeys(SEEDS, 1), RAISES: 2, KILLED: 2, MEMORY: 2, PREEMPTED: 2, NODE: 2}
