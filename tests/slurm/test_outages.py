"""A sweep while Slurm itself fails and acts: daemons away, a job requeued, a node of two dead."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cluster_user import PATIENCE_S, TWO_RANKS, User, wait_for

from experiments.records.record import Record, Status
from slurm.jobs import details
from slurm.testcluster import TestCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

FAULTS = Path(__file__).parent / "faults"
FINE, REQUEUED, SECOND_NODE = SEEDS = range(1, 4)
"""Seeds of the cells: each a job of two nodes with one rank each."""


@pytest.fixture
def hanging(user: User) -> User:
    """Ranks of some seeds hang in their fourth iteration, the first time their job runs."""
    there = {"rank": 1, "iteration": 3, "position": 1, "kind": "hang"}
    user.settings(
        minutes_per_cell=10,
        environment={"BITPIPE_TEST_FAULTS": json.dumps(dict.fromkeys((REQUEUED, SECOND_NODE), there))},
        setup=[f'export PYTHONPATH="{FAULTS}:$PYTHONPATH"'],
    )
    return user


def squeue_that_fails(folder: Path) -> Path:
    """A folder for PATH whose squeue gets no answer while ``away`` lies beside it."""
    folder.mkdir()
    script = folder / "squeue"
    script.write_text(
        f"#!/bin/sh\nif [ -e {folder}/away ]; then touch {folder}/asked\n"
        'echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1; fi\n'
        'exec /usr/bin/squeue "$@"\n'
    )
    script.chmod(0o755)
    return folder


def test_daemons_come_and_go_and_what_slurm_takes_away_runs_again(
    hanging: User, on_cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = ",".join(map(str, SEEDS))
    shape = ("cluster.devices_per_node=1", "cluster.nodes=2")
    done = hanging.run(*TWO_RANKS, *shape, f"seed={seeds}", "pack=false", "watchdog_s=600", "wait=false")
    assert done.returncode == 0, done.stdout + done.stderr
    cell = {seed: hanging.cell_of_seed(seed) for seed in SEEDS}
    job = {seed: hanging.job_of(id) for seed, id in cell.items()}
    fake = squeue_that_fails(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{fake}{os.pathsep}{os.environ['PATH']}")
    waits = hanging.slurm_start("collect", "--wait")

    def ended(seed: int, attempt: int = 1) -> Record | None:
        return next((r for r in hanging.records(cell[seed]) if r.attempt == attempt), None)

    def hangs(seed: int) -> bool:
        return hanging.logged(cell[seed], "fault")

    wait_for(lambda: hangs(REQUEUED))
    (fake / "away").touch()
    wait_for((fake / "asked").exists)
    on_cluster.stop_daemon("slurmctld")
    on_cluster.start_daemon("slurmctld")
    (fake / "away").unlink()
    on_cluster.client("scontrol", "requeue", job[REQUEUED])
    wait_for(lambda: ended(REQUEUED, 2), why="the requeued job runs again")

    wait_for(lambda: hangs(SECOND_NODE))
    on_cluster.stop_daemon("slurmdbd")
    nodes = on_cluster.client("scontrol", "show", "hostnames", details(job[SECOND_NODE])["NodeList"])
    second = nodes.stdout.split()[1]
    on_cluster.kill_node(second)
    wait_for(lambda: ended(SECOND_NODE), why="the node's death is known")
    wait_for(lambda: ended(SECOND_NODE, 2), why="the job runs again, on other nodes")
    # Not before: Slurm still wants to end the job's first run on that node, and would hit the second.
    on_cluster.revive_node(second)
    on_cluster.start_daemon("slurmdbd")
    text = waits.communicate(timeout=PATIENCE_S)[0]

    assert waits.returncode == 0, text
    assert "3 ok" in text
    assert text.count("slurmctld does not answer") == 1
    assert {seed: len(hanging.records(cell[seed])) for seed in SEEDS} == {
        FINE: 1,
        REQUEUED: 2,
        SECOND_NODE: 2,
    }
    assert ended(REQUEUED).status is Status.PREEMPTED
    assert "requeued" in ended(REQUEUED).cause.message
    assert ended(SECOND_NODE).status is Status.FAILED
    assert ended(SECOND_NODE).cause.kind == "node"
    assert f"node {second} failed" in ended(SECOND_NODE).cause.message
    assert [ended(seed, 2).status for seed in (REQUEUED, SECOND_NODE)] == [Status.OK, Status.OK]
    log = (hanging.folder.job(job[FINE]) / "rank0" / "err.txt").read_text()
    assert "CANCELLED" not in log  # a good run's log ends like one
