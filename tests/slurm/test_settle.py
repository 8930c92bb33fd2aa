"""Where a cell stands, from its job's journal and Slurm's word, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from some_blocks import block

from bitpipe.errors import InputError
from experiments.composing.settings import RunSettings
from experiments.records.record import Cause, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end
from slurm import client, jobs, settle, show
from slurm.folder import Submitted, SweepFolder
from slurm.jobs import JobState
from slurm.journal import Journal
from slurm.plan import Request
from slurm.requeue import wanted_cells
from slurm.settle import CellState, Collector, look
from slurm.watch import follow


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


Say = Callable[..., None]
SHAPE = Request(nodes=1, tasks_per_node=4, gpus_per_node=0, minutes=5)


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    """A sweep of one job with two cells, of which Slurm is asked; no job has written anything yet."""
    settings = RunSettings(results=tmp_path, launcher="slurm")
    one = replace(block(cells=2), settings=settings)
    folder = SweepFolder.create(tmp_path, "e", "s")
    folder.describe([one], {})
    cells = tuple(cell.id for cell in one.cells)
    folder.append([Submitted(job="7", block=0, kind="block", cells=cells, request=SHAPE, submitted=0.0)])
    return folder


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Say:
    """Say what Slurm says of all jobs, or of one."""
    said: dict[str, JobState] = {}

    def say(state: str, job: str = "", **more: object) -> None:
        said[job] = JobState(id="7", state=state, **more)  # type: ignore[arg-type]

    def states(ids: list[str]) -> dict[str, JobState]:
        return {id: replace(said.get(id, said.get("")), id=id) for id in ids}  # type: ignore[type-var]

    monkeypatch.setattr(jobs, "states", states)
    monkeypatch.setattr(jobs, "earlier", lambda id: None)
    monkeypatch.setattr(jobs, "ended_by", lambda id: 0)
    monkeypatch.setattr(jobs, "failed_nodes", lambda nodes: ["n2"] if "n" in nodes else [])
    return say


def files(folder: SweepFolder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.results.rglob("*") if path.is_file()}


LONG_AGO = 1.0


@pytest.mark.parametrize("state", [
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "GONE", "UNKNOWN",
    "REQUEUE_HOLD",
])  # fmt: skip
def test_looking_writes_nothing(sweep: SweepFolder, slurm: Say, state: str) -> None:
    journal = Journal(sweep.job("7"))
    first = next(iter(sweep.names))
    journal.write("begin", cell=first, attempt=Store(sweep.results).claim(first))
    slurm(state, ended=LONG_AGO)
    before = files(sweep)
    found = look(sweep)
    assert len(found) == 2
    assert files(sweep) == before


def test_a_record_that_is_late_is_waited_for(
    sweep: SweepFolder, slurm: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a network file system the news of a job's end may come before its journal."""
    (one,) = sweep.blocks()
    slurm("COMPLETED", nodes="n1", ended=time.time())
    collector = Collector(sweep)
    assert {(state.state, state.due) for state in collector.look()} == {("failed", True)}
    store, journal = Store(sweep.results), Journal(sweep.job("7"))
    for cell in one.cells:  # now it comes
        attempt = store.claim(cell.id)
        journal.write("begin", cell=cell.id, attempt=attempt)
        own = Cause(kind="exception", message="its own word")
        store.write(end(begin(cell, one, attempt), status=Status.FAILED, cause=own))
        journal.write("end", cell=cell.id, attempt=attempt, status="failed")
    journal.write("finish", by="job")
    assert {state.note for state in collector.to_the_end()} == {"its own word"}
    assert [store.attempts(cell.id) for cell in one.cells] == [[1], [1]]


@pytest.mark.parametrize(("facts", "words"), [
    ({"state": "FAILED", "nodes": "x", "ended": LONG_AGO}, "ended FAILED without a record"),
    ({"state": "GONE"}, "no longer knows how it ended"),
    ({"state": "FAILED", "signal": 9, "ended": LONG_AGO}, "killed by SIGKILL"),
    ({"state": "TIMEOUT", "ended": LONG_AGO}, "time limit of 5 minutes"),
    ({"state": "CANCELLED", "reason": "by user 0"}, "cancelled by user 0"),  # never ran: nothing can be late
])  # fmt: skip
def test_what_never_came_is_written_after_a_while_and_once(
    sweep: SweepFolder, slurm: Say, monkeypatch: pytest.MonkeyPatch, facts: dict[str, object], words: str
) -> None:
    monkeypatch.setattr(settle, "GRACE_S", 0.2)
    slurm(**facts)
    found = Collector(sweep).to_the_end()
    assert all(words in state.note and not state.due for state in found)
    before = files(sweep)
    assert [state.note for state in Collector(sweep).to_the_end()] == [state.note for state in found]
    assert files(sweep) == before
    records = [Store(sweep.results).latest(state.cell) for state in found]
    assert all(record and record.cause and words in record.cause.message for record in records)
    assert not any(Store(sweep.results).finished(state.cell) for state in found)  # run again


def test_an_attempt_that_a_dead_node_took_is_ended_and_the_job_waited_for(
    sweep: SweepFolder, slurm: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "GRACE_S", 0.0)
    monkeypatch.setattr(jobs, "earlier", lambda id: JobState(id=id, state="NODE_FAIL", nodes="n[1-2]"))
    first, second = sweep.names
    attempt = Store(sweep.results).claim(first)
    Journal(sweep.job("7")).write("begin", cell=first, attempt=attempt)
    slurm("PENDING", reason="Resources")
    found = {state.cell: state for state in Collector(sweep).look()}
    record = Store(sweep.results).read(first, attempt)
    assert record is not None
    assert record.status is Status.FAILED
    assert "node n2 failed" in record.cause.message  # type: ignore[union-attr]
    assert (found[first].state, found[second].state) == ("pending", "pending")
    assert Store(sweep.results).attempts(second) == []


def test_another_clusters_and_a_colleagues_jobs_are_unknown_not_lost(
    sweep: SweepFolder, slurm: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm("GONE")
    sweep.__dict__["facts"] = {**sweep.facts, "user": "somebody else"}
    assert {state.state for state in look(sweep)} == {"unknown"}
    assert all("somebody else" in state.note for state in look(sweep))
    monkeypatch.setattr(client, "configuration", lambda: {"ClusterName": "here"})
    sweep.__dict__["facts"] = {**sweep.facts, "cluster": "there"}
    assert all("cluster there, this is here" in state.note for state in look(sweep))
    assert Collector(sweep).look() == look(sweep)
    assert not (sweep.results / "cells").exists()


def test_a_held_job_is_not_waited_for_and_says_what_to_do(sweep: SweepFolder, slurm: Say) -> None:
    slurm("PENDING", reason="launch failed requeued held")
    said: list[str] = []
    states = follow(sweep, said.append, poll=0.01)
    assert {state.state for state in states} == {"held"}
    assert all("scontrol release 7" in state.note for state in states)
    assert not wanted_cells(states, "failed,missing,timeout")  # released, it would run twice


@pytest.fixture
def gated(sweep: SweepFolder) -> SweepFolder:
    """The same sweep behind a canary, job 6."""
    (old,) = sweep.jobs()
    (sweep.path / "jobs.jsonl").unlink()
    canary = replace(old, job="6", kind="canary", cells=("0" * 12,))
    sweep.append([canary, old])
    return sweep


def test_why_a_canary_failed_is_said_for_every_cell(gated: SweepFolder, slurm: Say) -> None:
    (one,) = gated.blocks()
    cell = one.cells[0]
    attempt = Store(gated.results).claim(cell.id)
    cause = Cause(kind="preflight", message="node n1: this job sees no CUDA device")
    Store(gated.results).write(end(begin(cell, one, attempt), status=Status.FAILED, cause=cause))
    journal = Journal(gated.job("6"))
    journal.write("begin", cell=cell.id, attempt=attempt)
    journal.write("end", cell=cell.id, attempt=attempt, status="failed")
    journal.write("finish", by="job")
    slurm("CANCELLED", reason="DependencyNeverSatisfied")
    said: list[str] = []
    states = follow(gated, said.append, poll=0.01)
    assert {state.state for state in states} == {"cancelled"}
    assert all("its canary failed: node n1: this job sees no CUDA device" in s.note for s in states)
    assert sum("this job sees no CUDA device" in line for line in said) == 2


def test_a_canary_that_waits_is_shown(gated: SweepFolder, slurm: Say) -> None:
    slurm("PENDING", reason="Dependency")
    slurm("PENDING", "6", reason="Resources")
    assert {state.note for state in look(gated)} == {"canary 6 is pending, Resources"}
    slurm("RUNNING", "6", nodes="n1")
    assert {state.note for state in look(gated)} == {"canary 6 is running"}


def test_a_canary_without_a_record_has_the_cause_of_its_job(gated: SweepFolder, slurm: Say) -> None:
    (gated.jobs_folder / "6_0_log.err").write_text("module: command not found\n")
    slurm("CANCELLED", reason="DependencyNeverSatisfied")
    slurm("FAILED", "6", ended=LONG_AGO)
    assert all("its canary failed: job 6 ended FAILED without a record: module: command" in s.note
               for s in look(gated))  # fmt: skip


def test_waiting_for_a_silent_slurm_ends_with_the_command_that_goes_on(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(ids: object) -> None:
        raise client.NoAnswer("slurm", "squeue", "no answer within 30 s")

    monkeypatch.setattr(jobs, "states", silent)
    with pytest.raises(InputError, match=r"jobs keep running.*slurm collect e/s --results \S+ --wait"):
        follow(sweep, print, poll=0.01)


def test_waiting_for_silent_accounting_ends_too(sweep: SweepFolder, slurm: Say) -> None:
    slurm("UNKNOWN", reason="slurmdbd does not answer")
    with pytest.raises(InputError, match=r"slurmdbd does not answer.*--wait"):
        follow(sweep, print, poll=0.01, patience=0.1)


def test_every_cell_that_ends_has_its_own_number(
    sweep: SweepFolder, slurm: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm("CANCELLED", reason="by user 0")
    said: list[str] = []
    follow(sweep, said.append, poll=0.01)
    assert [line.split()[0] for line in said if line.startswith("[")] == ["[1/2]", "[2/2]"]


@pytest.mark.parametrize(("only", "states"), [
    ("cancelled", {"cancelled"}),
    ("preempted", {"preempted"}),
    ("invalid", {"invalid"}),
    ("missing", {"missing", "cancelled", "preempted", "not submitted"}),
])  # fmt: skip
def test_every_state_that_is_shown_can_be_asked_for(only: str, states: set[str]) -> None:
    every = ["ok", "failed", "invalid", "timeout", "cancelled", "preempted", "missing", "not submitted"]
    found = [CellState(cell=name, name=name, job="7", state=name) for name in every]
    assert wanted_cells(found, only) == states


def test_logs_of_a_cell_that_has_written_none_say_so(
    taken: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = taken.names
    assert show.print_logs(taken, cell[:6], None, False) == 0
    assert capsys.readouterr().err == "no log yet\n"
    (taken.jobs_folder / "7_0_log.out").write_text("begun\n")
    show.print_logs(taken, cell[:6], None, False)
    assert capsys.readouterr().out.endswith("begun\n")
