"""Where a cell stands, from its job's journal and Slurm's word, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from some_blocks import block

from experiments.composing.settings import RunSettings
from slurm import jobs, show
from slurm.folder import Submitted, SweepFolder
from slurm.jobs import JobState
from slurm.journal import Journal
from slurm.plan import Request
from slurm.requeue import wanted_cells
from slurm.settle import CellState, look


@pytest.fixture
def taken(tmp_path: Path) -> SweepFolder:
    """A sweep whose only cell was taken away by Slurm; its job has said so."""
    one = block()
    folder = SweepFolder.create(tmp_path, "e", "s")
    folder.describe([one], {"settings": str(RunSettings(results=tmp_path))})
    shape = Request(nodes=1, tasks_per_node=4, gpus_per_node=0, minutes=5)
    id = one.cells[0].id
    folder.append([Submitted(job="7", block=0, kind="block", cells=(id,), request=shape, submitted=0.0)])
    journal = Journal(folder.job("7"))
    journal.write("begin", cell=id, attempt=1)
    journal.write("end", cell=id, attempt=1, status="timeout", taken=True)
    return folder


@pytest.mark.parametrize(("slurm", "state", "waiting"), [
    ("PENDING", "pending", True),
    ("RUNNING", "running", True),
    ("COMPLETING", "running", True),
    ("TIMEOUT", "timeout", False),
])  # fmt: skip
def test_a_cell_that_was_taken_away_waits_until_its_job_has_gone(
    taken: SweepFolder, monkeypatch: pytest.MonkeyPatch, slurm: str, state: str, waiting: bool
) -> None:
    monkeypatch.setattr(jobs, "states", lambda ids: {id: JobState(id=id, state=slurm) for id in ids})
    (found,) = look(taken)
    assert (found.state, found.waiting) == (state, waiting)


def test_the_advice_after_a_sweep_can_be_followed(
    taken: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    states = [
        CellState(cell=name, name=name, job="7", state=name)
        for name in ("ok", "oom", "failed", "timeout", "cancelled", "preempted", "missing", "not submitted")
    ]
    assert show.report(taken, states) == 1
    only = capsys.readouterr().out.strip().rpartition("--only ")[2]
    assert wanted_cells(states, only) == {state.cell for state in states} - {"ok", "oom"}
