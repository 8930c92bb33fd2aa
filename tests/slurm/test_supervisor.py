"""A job's supervisor when signals come: it writes down what Slurm says, and nothing that it does not."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from some_blocks import block

from experiments.composing.settings import RunSettings
from experiments.records.record import Record, Status
from experiments.records.store import Store
from slurm import client, job, jobs
from slurm.folder import SweepFolder
from slurm.job import Call, Supervisor, TakenAway
from slurm.jobs import JobState
from slurm.plan import Request
from slurm.site import Site

LIMIT = {"JobState": "RUNNING", "TimeLimit": "00:05:00", "StartTime": "2026-01-01T10:00:00"}


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Of a block of two cells whose attempts have begun."""
    monkeypatch.setattr(job, "ASK_S", 0.05)
    monkeypatch.setattr(jobs, "failed_nodes", lambda nodes: ["n2"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    cells = replace(block(cells=2), settings=RunSettings(results=tmp_path, launcher="slurm"))
    folder = SweepFolder.create(tmp_path, "e", "s")
    shape = Request(nodes=2, tasks_per_node=2, gpus_per_node=0, minutes=5)
    made = Supervisor(Call(block=cells, folder=folder.path, request=shape, site=Site()), "7")
    made.facts = {"nodes": "n[1-2]"}
    made.journal.write("start", restart=0, nodes="n[1-2]")
    for cell in cells.cells:
        made.journal.write("begin", cell=cell.id, attempt=made.store.claim(cell.id))
    return made


def slurm_says(monkeypatch: pytest.MonkeyPatch, details: dict[str, str] | None) -> None:
    def answer(id: str, **_: object) -> dict[str, str]:
        if details is None:
            raise client.NoAnswer("slurm", "scontrol", "no answer")
        return details

    monkeypatch.setattr(jobs, "details", answer)


def records(supervisor: Supervisor) -> list[Record]:
    store = Store(supervisor.store.root)
    found = (store.latest(cell.id) for cell in supervisor.call.block.cells)
    return [record for record in found if record is not None]


@pytest.mark.parametrize("details", [None, {}, {**LIMIT, "TimeLimit": "UNLIMITED"}])
def test_where_nobody_says_why_nothing_is_written_and_the_next_start_ends_it(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, details: dict[str, str] | None
) -> None:
    slurm_says(monkeypatch, details)
    with pytest.raises(TakenAway) as end:
        supervisor._signalled(signal.SIGTERM, None)
    assert end.value.reason == ""
    assert records(supervisor) == []
    assert len(supervisor.journal.open()) == 2
    assert not supervisor.journal.finished()

    monkeypatch.setattr(jobs, "earlier", lambda id: JobState(id=id, state="PREEMPTED"))
    supervisor._resume()
    assert [record.status for record in records(supervisor)] == [Status.PREEMPTED] * 2
    left = supervisor._left()
    assert left is not None
    assert len(left.cells) == 2


@pytest.mark.parametrize(("said", "status", "words"), [
    ("DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ", Status.FAILED, "node n2 failed"),
    ("DUE TO JOB REQUEUE ", Status.PREEMPTED, "requeued by Slurm"),
    ("DUE TO PREEMPTION ", Status.PREEMPTED, "was preempted"),
    ("DUE TO TIME LIMIT ", Status.TIMEOUT, "time limit of 5 minutes"),
])  # fmt: skip
def test_without_a_controller_the_step_daemon_says_why(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, said: str, status: Status, words: str
) -> None:
    slurm_says(monkeypatch, None)
    line = f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-30T23:08:27 {said}***\n"
    supervisor._log.write_text(line)
    with pytest.raises(TakenAway):
        supervisor._signalled(signal.SIGTERM, None)
    assert [record.status for record in records(supervisor)] == [status] * 2
    assert all(record.cause and words in record.cause.message for record in records(supervisor))
    assert supervisor.journal.taken() == {cell.id for cell in supervisor.call.block.cells}


def test_an_earlier_starts_words_are_not_about_this_one(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_says(monkeypatch, None)
    supervisor._log.write_text(
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-30T23:08:27 DUE TO JOB REQUEUE ***\n"
    )
    supervisor._log_at_start = supervisor._log.stat().st_size
    with pytest.raises(TakenAway) as end:
        supervisor._signalled(signal.SIGTERM, None)
    assert end.value.reason == ""


@pytest.mark.parametrize("details", [None, {**LIMIT, "EndTime": "2099-01-01T10:00:00"}])
def test_the_watch_on_the_limit_asks_before_it_ends_anything(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, details: dict[str, str] | None
) -> None:
    """A longer limit may have been granted."""
    slurm_says(monkeypatch, details)
    supervisor._signalled(signal.SIGALRM, None)
    assert len(supervisor.journal.open()) == 2
    assert records(supervisor) == []


def test_cancelled_is_what_slurm_calls_so(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm_says(monkeypatch, {**LIMIT, "JobState": "CANCELLED"})
    with pytest.raises(TakenAway, match="CANCELLED"):
        supervisor._signalled(signal.SIGTERM, None)
    assert [record.status for record in records(supervisor)] == [Status.CANCELLED] * 2


def test_silent_accounting_does_not_end_a_job_that_starts_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "earlier", lambda id: None)
    supervisor._resume()
    assert [record.status for record in records(supervisor)] == [Status.PREEMPTED] * 2
    assert all("after node n2 failed" in record.cause.message for record in records(supervisor))  # type: ignore[union-attr]
