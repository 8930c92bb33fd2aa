"""Where the cells of a sweep stand, and, apart from that, the records that jobs could not write."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.cell import Cell
from experiments.records.record import Cause, Record, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end
from experiments.running.block import Block
from slurm import client, jobs
from slurm.folder import Submitted, SweepFolder
from slurm.jobs import UNKNOWN, JobState
from slurm.journal import Journal
from slurm.verdict import verdict

GRACE_S = 20.0
"""So long after a job's end its own record may still be on its way, through a network file system."""


@dataclass(frozen=True, kw_only=True)
class CellState:
    """Where one cell of a sweep stands.

    Attributes:
        cell: its id.
        name: what people call it.
        job: the newest job that is to run it, None before submission.
        state: a record's status, or ``pending``, ``running``, ``held`` (until somebody releases it),
            ``unknown`` (Slurm does not say), ``missing``, ``not submitted``.
        note: cause, reason or nodes.
        attempt: its newest attempt in this sweep.
        due: its job has ended without a word, so that the record is still to be written.
    """

    cell: str
    name: str
    job: str | None
    state: str
    note: str = ""
    attempt: int | None = None
    due: bool = False

    @property
    def waiting(self) -> bool:
        """Something may still come of it."""
        return self.state in ("pending", "running", "unknown")


ONLY = {
    "failed": {"failed"},
    "oom": {"oom"},
    "timeout": {"timeout"},
    "invalid": {"invalid"},
    "missing": {"missing", "cancelled", "preempted", "not submitted"},
    "cancelled": {"cancelled"},
    "preempted": {"preempted"},
}
"""What can be asked to run again, and the states of cells that each name stands for."""


def look(folder: SweepFolder) -> list[CellState]:
    """State of every cell. Only reads, whoever's sweep it is.

    Raises:
        NoAnswer: Slurm does not answer.
    """
    return _Survey.of(folder).cells()


class Collector:
    """Looks, and writes the records of jobs that ended and could not write them.

    A job's own record may reach this machine after the news of its end, so nothing is written until
    :data:`GRACE_S` after that end.
    """

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self._since: dict[str, float] = {}

    def look(self) -> list[CellState]:
        """State of every cell, after what is due was written.

        Raises:
            NoAnswer: Slurm does not answer.
            NotWritten: the file system refuses.
        """
        survey = _Survey.of(self.folder)
        due = [job for job in survey.unsettled() if job.kind == "block" and survey.must_settle(job)]
        blocks = self.folder.blocks() if any(map(self._ripe, due, map(survey.state, due))) else []
        wrote = False
        for job in due:
            if self._ripe(job, survey.state(job)):
                settle(self.folder, job, survey.state(job), blocks[job.block], survey.canary_cause(job))
                wrote = True
        return (_Survey.of(self.folder) if wrote else survey).cells()

    def to_the_end(self) -> list[CellState]:
        """The same once every record that is due has been written."""
        while True:
            states = self.look()
            if not any(state.due for state in states):
                return states
            time.sleep(0.5)

    def _ripe(self, job: Submitted, state: JobState) -> bool:
        since = self._since.setdefault(job.job, time.monotonic())
        never_ran = state.state == "CANCELLED" and state.nodes in ("", "None assigned")
        long_ago = state.ended is not None and time.time() - state.ended >= GRACE_S
        return never_ran or long_ago or time.monotonic() - since >= GRACE_S


@dataclass(frozen=True)
class _Survey:
    """One look at a sweep: its jobs, their journals, and Slurm's word on those that have not finished."""

    folder: SweepFolder
    jobs: tuple[Submitted, ...]
    journals: Mapping[str, Journal]
    states: Mapping[str, JobState]

    @classmethod
    def of(cls, folder: SweepFolder) -> _Survey:
        every = tuple(folder.jobs())
        journals = {job.job: Journal(folder.job(job.job)) for job in every}
        for journal in journals.values():
            journal.refresh()
        ids = [id for id, journal in journals.items() if not journal.finished()]
        return cls(folder, every, journals, _states(folder, ids))

    def state(self, job: Submitted) -> JobState:
        return self.states[job.job]

    def unsettled(self) -> list[Submitted]:
        return [job for job in self.jobs if job.job in self.states]

    def must_settle(self, job: Submitted) -> bool:
        """It has ended, or waits again with an attempt left open: it was taken away."""
        state = self.state(job)
        return not state.active or (state.queued and bool(self.journals[job.job].open()))

    def cells(self) -> list[CellState]:
        newest: dict[str, Submitted] = {}
        for job in self.jobs:
            if job.kind == "block":
                newest.update(dict.fromkeys(job.cells, job))
        return [self._cell(id, name, newest.get(id)) for id, name in self.folder.names.items()]

    def _cell(self, id: str, name: str, job: Submitted | None) -> CellState:
        if job is None:
            return CellState(cell=id, name=name, job=None, state="not submitted")
        journal, slurm = self.journals[job.job], self.states.get(job.job)
        attempt = journal.attempts().get(id)

        def found(state: str, note: str, *, due: bool = False) -> CellState:
            return CellState(
                cell=id, name=name, job=job.job, state=state, note=note, attempt=attempt, due=due
            )

        ended = journal.ended().get(id)
        is_open = id in journal.open()
        again = slurm is not None and slurm.active and id in journal.taken()
        if ended is not None and not is_open and not again:
            record = Store(self.folder.results).read(id, attempt or 0)
            return found(ended, record.cause.message if record and record.cause else "")
        if slurm is None:
            return found("missing", "its job has finished without it")
        if not slurm.active:
            canary = self.canary_cause(job)
            status, cause = verdict(
                slurm, job.request.minutes, stderr=_stderr(self.folder, job), canary=canary
            )
            return found(str(status), f"{cause.message}; no record yet", due=True)
        before = f"attempt {attempt} was {ended}; " if again else ""
        if slurm.held:
            note = f"{slurm.reason or slurm.state}: scontrol release {job.job}"
            return found("held", before + note, due=is_open)
        if slurm.state == UNKNOWN:
            return found("unknown", before + slurm.reason)
        if slurm.queued or slurm.state == "CONFIGURING":
            reason = self._canary_stands(job) if "Dependency" in slurm.reason else slurm.reason
            return found("pending", before + reason, due=is_open)
        return found("running", before + slurm.nodes)

    # ---- canaries

    def _canary(self, job: Submitted) -> Submitted | None:
        """The canary that a job waited for: the newest of its shape before it."""
        shape = (job.request.nodes, job.request.tasks_per_node)
        before = self.jobs[: self.jobs.index(job)]
        for one in reversed(before):
            if one.kind == "canary" and (one.request.nodes, one.request.tasks_per_node) == shape:
                return one
        return None

    def _canary_stands(self, job: Submitted) -> str:
        canary = self._canary(job)
        slurm = self.states.get(canary.job) if canary else None
        if canary is None or slurm is None:
            return "Dependency"
        stands = f"pending, {slurm.reason}" if slurm.queued else slurm.state.lower()
        return f"canary {canary.job} is {stands}"

    def canary_cause(self, job: Submitted) -> str:
        """Why a job's canary failed, as far as that is known."""
        canary = self._canary(job)
        if canary is None:
            return ""
        journal = self.journals[canary.job]
        for id, attempt in journal.attempts().items():
            record = Store(self.folder.results).read(id, attempt)
            if record is not None and record.cause is not None:
                return record.cause.message
        slurm = self.states.get(canary.job)
        if slurm is None or slurm.active:
            return ""
        return verdict(slurm, canary.request.minutes, stderr=_stderr(self.folder, canary))[1].message


def _states(folder: SweepFolder, ids: list[str]) -> dict[str, JobState]:
    """Slurm's word on jobs; ``UNKNOWN`` where this cluster or this user cannot ask."""
    made, here = folder.facts.get("cluster"), None
    if ids and made and made != (here := client.configuration().get("ClusterName")):
        reason = f"submitted on cluster {made}, this is {here}"
        return {id: JobState(id=id, state=UNKNOWN, reason=reason) for id in ids}
    found = jobs.states(ids)
    owner = folder.facts.get("user")
    if owner and owner != getpass.getuser():
        reason = f"a job of {owner}, whom Slurm shows it to"
        for id, state in found.items():
            if state.state == jobs.GONE:
                found[id] = JobState(id=id, state=UNKNOWN, reason=reason)
    return found


def _stderr(folder: SweepFolder, job: Submitted) -> str:
    """The end of a job's own error output."""
    path = folder.jobs_folder / f"{job.job}_0_log.err"
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4000))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


BY_NODES = ("NODE_FAIL", "BOOT_FAIL", "REQUEUED", "PENDING")
"""States that a dead node may be behind."""


def settle(folder: SweepFolder, job: Submitted, state: JobState, block: Block, canary: str = "") -> None:
    """Write the records that a job left open, and, if it will not come back, those it never began."""
    journal = Journal(folder.job(job.job))
    if state.active:
        state = jobs.earlier(job.job) or state
    elif state.state == "FAILED" and not state.signal:
        state = replace(state, signal=jobs.ended_by(job.job))
    nodes = state.nodes or journal.nodes()
    failed = ", ".join(jobs.failed_nodes(nodes)) if state.state in BY_NODES else ""
    status, cause = verdict(
        state, job.request.minutes, stderr=_stderr(folder, job), failed=failed, canary=canary
    )
    cells = {cell.id: cell for cell in block.cells}
    for id, attempt in journal.open().items():
        close(journal, block, cells[id], attempt, status, cause)
    if state.active or state.state in ("NODE_FAIL", "PREEMPTED", "REQUEUED"):
        still = jobs.states([job.job])[job.job]
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
