"""How a sweep ended: one summary, whoever ran the cells."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from experiments.composing.config import ExperimentConfig
from experiments.composing.sweep import Sweep
from experiments.records.record import FINISHED, Status
from experiments.records.store import Store


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
        total = sum(outcome.counts.values())
        super().__init__(f"{len(outcome.failed)} of {total} cells of {outcome.experiment} failed")


ended: list[Outcome] = []
"""Outcomes of the sweeps that this process ran, for the entry point: Hydra passes no results on."""


def report(sweep: Sweep) -> Outcome:
    """Read the records of a sweep, print the summary and note the outcome.

    Raises:
        SweepFailed: a cell failed or has no record.
    """
    outcome = outcome_of(sweep)
    ended.append(outcome)
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items())
    print(f"{sweep.experiment}: {sum(outcome.counts.values())} cells: {counts}", flush=True)
    for cell, name, what in outcome.failed:
        print(f"  {cell} {name}: {what}", flush=True)
    if outcome.failed:
        raise SweepFailed(outcome)
    return outcome


def outcome_of(sweep: Sweep) -> Outcome:
    """The same without printing or raising."""
    store = Store(sweep.settings.results)
    counts: Counter[str] = Counter()
    failed = []
    for cell in {point.cell.id: point.cell for point in sweep.points}.values():
        record = store.best(cell.id)
        counts[record.status if record else "missing"] += 1
        if record is None:
            failed.append((cell.id, str(cell), "no record"))
        elif record.status not in FINISHED:
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
