"""How a sweep ended: one summary, whoever ran the cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitpipe.words import counted
from experiments.composing.config import ExperimentConfig
from experiments.composing.sweep import Point, Sweep
from experiments.records.record import FINISHED, Record, Status
from experiments.records.store import Store
from experiments.records.wandb_sink import missing_copies

Made = Mapping[str, int | str]
"""Cell id → the attempt that a sweep made of it, or why it made none. A cell that is not in it was
not to be run, because an earlier record says all."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sweep left behind.

    Attributes:
        experiment: its name.
        results: the results folder.
        counts: cells per status; ``missing`` counts cells without a record.
        failed: (cell id, cell, what happened) for each cell that is neither ok nor a result.
        draws: whether its table is to be shown: it has one, and ``draw=false`` was not given.
    """

    experiment: str
    results: Path
    counts: dict[str, int]
    failed: tuple[tuple[str, str, str], ...]
    draws: bool


class SweepFailed(Exception):
    """Some cells of a sweep failed; the others are there."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        total = counted(sum(outcome.counts.values()), "cell")
        super().__init__(f"{len(outcome.failed)} of {total} of {outcome.experiment} failed")


ended: list[Outcome] = []
"""Outcomes of the sweeps that this process ran, for the entry point: Hydra passes no results on."""


def report(sweep: Sweep, made: Made) -> Outcome:
    """Read the records of a sweep, print the summary and note the outcome.

    Raises:
        SweepFailed: a cell failed or has no record.
    """
    outcome = outcome_of(sweep, made)
    ended.append(outcome)
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items())
    print(f"{sweep.experiment}: {counted(sum(outcome.counts.values()), 'cell')}: {counts}", flush=True)
    for cell, name, what in outcome.failed:
        print(f"  {cell} {name}: {what}", flush=True)
    store = Store(sweep.settings.results)
    found = [store.read(cell, attempt) for cell, attempt in made.items() if isinstance(attempt, int)]
    if line := missing_copies(record for record in found if record):
        print(line, flush=True)
    if outcome.failed:
        raise SweepFailed(outcome)
    return outcome


def outcome_of(sweep: Sweep, made: Made) -> Outcome:
    """The same without printing or raising: of the attempts that the sweep made, not of better ones."""
    store = Store(sweep.settings.results)
    counts: Counter[str] = Counter()
    failed = []
    for point in {point.cell.id: point for point in sweep.points}.values():
        cell = point.cell
        record = _record(store, cell.id, made)
        counts[record.status if record else "missing"] += 1
        if record is None:
            why = made.get(cell.id)
            failed.append((cell.id, str(cell), why if isinstance(why, str) else "no record"))
        elif not _is_result(record, point):
            message = record.cause.message if record.cause else ""
            failed.append((cell.id, str(cell), f"{record.status}: {message}"))
    order = [*Status, "missing"]
    return Outcome(
        experiment=sweep.experiment,
        results=sweep.settings.results,
        counts={str(status): counts[status] for status in order if counts[status]},
        failed=tuple(failed),
        draws=bool(sweep.config.get("draw")) and sweep.experiment != ExperimentConfig.name,
    )


def _record(store: Store, cell: str, made: Made) -> Record | None:
    attempt = made.get(cell)
    if attempt is None:
        return store.best(cell)
    return None if isinstance(attempt, str) else store.read(cell, attempt)


def _is_result(record: Record, point: Point) -> bool:
    """``invalid`` is a result where the experiment asks for it: the sweep itself refuses the cell."""
    refused = record.status is Status.INVALID and point.refusal is not None
    return record.status in FINISHED or refused
