"""Runs one block: the same function on a laptop and inside a Slurm job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from experiments.block import Block
from experiments.cell import Cell
from experiments.provenance import provenance
from experiments.record import Cause, Record, Status
from experiments.settings import RunSettings
from experiments.simulated import simulate
from experiments.store import Store
from experiments.sweep import Sweep

Report = Callable[[Record, str], None]
"""Told of every finished record, with the cell's name."""


def run_block(block: Block, report: Report) -> list[Record]:
    """Run a block's cells and write one record each, whatever happens to them.

    Cells of ``simulate`` are predicted one after another; those of every other backend are run
    by one pool of ranks, in rotation.
    """
    if block.backend == "simulate":
        records = []
        for cell in block.cells:
            record = simulate(cell, block)
            report(record, str(cell))
            records.append(record)
        return records
    from experiments.ranks import run_ranks  # with torch

    return run_ranks(block, report)


def record_refusals(sweep: Sweep) -> None:
    """Write an ``invalid`` record for every impossible cell that the experiment counts as a result."""
    store = Store(sweep.settings.results)
    for point in sweep.points:
        if point.refusal is None or store.finished(point.cell.id):
            continue
        cause = Cause(kind="input", message=str(point.refusal))
        record = begin(point.cell, sweep.experiment, sweep.settings, store.claim(point.cell.id))
        store.write(end(record, status=Status.INVALID, cause=cause))


def begin(cell: Cell, experiment: str, settings: RunSettings, attempt: int) -> Record:
    """A record of an attempt that starts now; its status says failed until :func:`end`."""
    now = datetime.now(UTC).isoformat()
    return Record(
        cell=cell.id,
        attempt=attempt,
        status=Status.FAILED,
        origin=cell.origin,
        experiment=experiment,
        identity=cell.identity(),
        labels=cell.labels,
        provenance=provenance(cell, settings.launcher),
        started=now,
        finished=now,
        cause=Cause(kind="unfinished", message="the attempt did not end"),
    )


def end(record: Record, **changes: object) -> Record:
    """The record of the same attempt, ended now."""
    return replace(record, finished=datetime.now(UTC).isoformat(), **changes)  # type: ignore[arg-type]
