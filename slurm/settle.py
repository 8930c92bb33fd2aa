"""Brings records up to date with Slurm: whatever a job could not write itself is written here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.cell import Cell
from experiments.records.record import Cause, Record, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end
from experiments.running.block import Block
from slurm import client
from slurm.client import JobState
from slurm.folder import Submitted, SweepFolder
from slurm.journal import Journal
from slurm.verdict import verdict


@dataclass(frozen=True, kw_only=True)
class CellState:
    """Where one cell of a sweep stands.

    Attributes:
        cell: its id.
        name: what people call it.
        job: the newest job that is to run it, None before submission.
        state: a record's status, or ``pending``, ``running``, ``submitted``.
        note: cause, reason or nodes.
        attempt: its newest attempt in this sweep.
    """

    cell: str
    name: str
    job: str | None
    state: str
    note: str = ""
    attempt: int | None = None

    @property
    def waiting(self) -> bool:
        """Something may still come of it."""
        return self.state in ("pending", "running")


ONLY = {
    "failed": {"failed"},
    "oom": {"oom"},
    "timeout": {"timeout"},
    "missing": {"missing", "cancelled", "preempted", "not submitted"},
}
"""What can be asked to run again, and the states of cells that each name stands for."""


def look(folder: SweepFolder, *, write: bool = True) -> list[CellState]:
    """State of every cell; with ``write``, missing records of ended jobs are written first.

    Raises:
        InputError: Slurm does not answer.
    """
    jobs = folder.jobs()
    unsettled = [job for job in jobs if not _settled(folder, job)]
    states = client.states(job.job for job in unsettled)
    if write:
        blocks: list[Block] = []
        for job in unsettled:
            if job.kind == "block" and _must_settle(folder, job, states[job.job]):
                blocks = blocks or folder.blocks()
                settle(folder, job, states[job.job], blocks[job.block])
    newest: dict[str, Submitted] = {}
    for job in jobs:
        if job.kind == "block":
            newest.update(dict.fromkeys(job.cells, job))
    return [_cell_state(folder, id, name, newest.get(id), states) for id, name in folder.names.items()]


def _settled(folder: SweepFolder, job: Submitted) -> bool:
    """Every cell of the job has ended and the job has said that it is done."""
    events = Journal(folder.job(job.job)).events()
    return bool(events) and events[-1]["event"] == "finish"


def _must_settle(folder: SweepFolder, job: Submitted, state: JobState) -> bool:
    if not state.active:
        return True
    # Waiting again with an attempt left open: it was taken away.
    return state.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD") and bool(
        Journal(folder.job(job.job)).open()
    )


def settle(folder: SweepFolder, job: Submitted, state: JobState, block: Block) -> None:
    """Write the records that a job left open, and, if it will not come back, those it never began."""
    journal = Journal(folder.job(job.job))
    if state.active:
        state = client.earlier(job.job) or state
    error = folder.jobs_folder / f"{job.job}_0_log.err"
    stderr = error.read_text(errors="replace")[-4000:] if error.exists() else ""
    status, cause = verdict(state, job.request, stderr=stderr)
    cells = {cell.id: cell for cell in block.cells}
    open_attempts = journal.open()
    for id, attempt in open_attempts.items():
        close(journal, block, cells[id], attempt, status, cause)
    if state.active or state.state in ("NODE_FAIL", "PREEMPTED", "REQUEUED"):
        still = client.states([job.job])[job.job]
        if still.active:
            return
    store = Store(folder.results)
    for id in job.cells:
        if id not in journal.ended() and id in cells:
            attempt = store.claim(id)
            journal.write("begin", cell=id, attempt=attempt)
            close(journal, block, cells[id], attempt, status, cause)
    journal.write("finish", by="collect", state=state.state)


def close(
    journal: Journal,
    block: Block,
    cell: Cell,
    attempt: int,
    status: Status,
    cause: Cause,
    *,
    taken: bool = True,
    slurm: Mapping[str, Any] | None = None,
) -> Record:
    """End an attempt that nobody else will end; a record that is already there stays.

    Args:
        journal: of the job that began the attempt.
        block, cell, attempt: which.
        status, cause: how and why it ended.
        taken: Slurm took the job away, so a requeued job runs the cell again.
        slurm: facts about the job, for the record's provenance.
    """
    store = Store(block.settings.results)
    record = store.read(cell.id, attempt)
    if record is None:
        record = end(begin(cell, block, attempt), status=status, cause=cause)
        facts = slurm or {"job": journal.folder.name}
        record = replace(record, provenance={**record.provenance, "slurm": facts})
        store.write(record)
    journal.write("end", cell=cell.id, attempt=attempt, status=str(record.status), taken=taken)
    return record


def _cell_state(
    folder: SweepFolder, id: str, name: str, job: Submitted | None, states: Mapping[str, JobState]
) -> CellState:
    if job is None:
        return CellState(cell=id, name=name, job=None, state="not submitted")
    journal = Journal(folder.job(job.job))
    open_attempts, ended = journal.open(), journal.ended()
    slurm = states.get(job.job)
    if id in open_attempts:
        nodes = slurm.nodes if slurm else ""
        return CellState(
            cell=id, name=name, job=job.job, state="running", note=nodes, attempt=open_attempts[id]
        )
    again = slurm is not None and slurm.active and id in journal.taken()
    if id in ended and not again:
        attempt = journal.attempts()[id]
        record = Store(folder.results).read(id, attempt)
        note = record.cause.message if record and record.cause else ""
        return CellState(cell=id, name=name, job=job.job, state=ended[id], note=note, attempt=attempt)
    if slurm is None or not slurm.active:
        return CellState(cell=id, name=name, job=job.job, state="missing", note=slurm.state if slurm else "")
    waiting = slurm.state not in ("RUNNING", "COMPLETING")  # a job on its way out waits for nothing
    note = slurm.reason if waiting else slurm.nodes
    newest = journal.attempts().get(id)
    if again:
        note = f"attempt {newest} was {ended[id]}; {note}"
    state = "pending" if waiting else "running"
    return CellState(cell=id, name=name, job=job.job, state=state, note=note, attempt=newest)
