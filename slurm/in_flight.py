"""Cells that an earlier submission has on its way: nothing is submitted twice."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.records.store import NotWritten
from experiments.running.block import Block
from slurm.folder import Submitted, SweepFolder
from slurm.jobs import states as states_of
from slurm.journal import Journal

LOCK = ".submitting"


@dataclass(frozen=True, kw_only=True)
class Flight:
    """Cells that one earlier sweep is still to run, each with its job."""

    folder: SweepFolder
    jobs: Mapping[str, str]


@contextmanager
def alone(results: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One submission below a results folder at a time, so that the second one sees what the first did.

    Raises:
        NotWritten: the folder cannot be written to.
    """
    path = results / LOCK
    try:
        results.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise NotWritten(path, error.strerror or str(error)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command is submitting into these results; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems have no locks
            say(f"warning: no locks at {results} ({error.strerror}): do not submit twice at once")
        yield


def in_flight(results: Path, blocks: Sequence[Block]) -> list[Flight]:
    """Where cells of these blocks are on their way, measured as often as asked for here; newest first.

    Raises:
        InputError: Slurm does not answer.
    """
    asked = {cell.id: block.settings.repeats for block in blocks for cell in block.cells}
    folders = [SweepFolder(path.parent) for path in (results / "slurm").glob("*/*/jobs.jsonl")]
    folders.sort(key=lambda folder: folder.path.name, reverse=True)
    open_jobs = [(folder, job) for folder in folders for job in _open_jobs(folder, asked.keys())]
    states = states_of(job.job for _, job in open_jobs) if open_jobs else {}
    found: dict[Path, dict[str, str]] = {}
    for folder, job in open_jobs:
        if not states[job.job].active:
            continue
        for cell in _left(folder, job):
            known = any(cell in jobs for jobs in found.values())
            if not known and cell in asked and _repeats(folder, job) >= asked[cell]:
                found.setdefault(folder.path, {})[cell] = job.job
    return [Flight(folder=SweepFolder(path), jobs=jobs) for path, jobs in found.items()]


def without(blocks: Sequence[Block], flights: Sequence[Flight]) -> list[Block]:
    """The blocks without the cells that are on their way."""
    flying = {cell for flight in flights for cell in flight.jobs}
    left = []
    for block in blocks:
        cells = tuple(cell for cell in block.cells if cell.id not in flying)
        if cells:
            left.append(replace(block, cells=cells))
    return left


def _open_jobs(folder: SweepFolder, wanted: Set[str]) -> list[Submitted]:
    """Jobs of a sweep that may still run one of these cells."""
    return [
        job
        for job in folder.jobs()
        if job.kind == "block" and not wanted.isdisjoint(job.cells) and _left(folder, job)
    ]


def _left(folder: SweepFolder, job: Submitted) -> list[str]:
    """Cells of a job that have not ended, or that it runs again once Slurm has requeued it."""
    journal = Journal(folder.job(job.job))
    events = journal.events()
    if events and events[-1]["event"] == "finish":
        return []
    done, taken = journal.ended(), journal.taken()
    return [cell for cell in job.cells if cell not in done or cell in taken]


def _repeats(folder: SweepFolder, job: Submitted) -> int:
    """How often a job measures its cells; 0 where that cannot be read any more."""
    try:
        return folder.blocks()[job.block].settings.repeats
    except (OSError, ValueError, LookupError, TypeError):
        return 0
