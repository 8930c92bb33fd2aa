"""Runs one block: the same function on a laptop and inside a Slurm job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.composing.sweep import Sweep
from experiments.records.record import FINISHED, Cause, Record, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end
from experiments.running.block import Block
from experiments.running.simulated import simulate

if TYPE_CHECKING:
    from bitpipe.runtime.processes.pool import Pool

Report = Callable[[Record, str], None]
"""Told of every finished record, with the cell's name."""


def run_block(
    block: Block,
    report: Report,
    *,
    pool: Pool | None = None,
    begun: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Run a block's cells and write one record each, whatever happens to them.

    Cells of ``simulate`` are predicted one after another; those of every other backend are run
    by one pool of ranks, in rotation.

    Args:
        block: the cells.
        report: called with each record as soon as it is written.
        pool: ranks that are up already; None starts them here and stops them at the end.
        begun: called with the unfinished record of every attempt before ranks run it.
    """
    if block.backend == "simulate":
        records = []
        for cell in block.cells:
            record = simulate(cell, block)
            report(record, str(cell))
            records.append(record)
        return records
    from experiments.running.ranks import run_ranks  # with torch

    return run_ranks(block, report, pool=pool, begun=begun)


def record_refusals(sweep: Sweep) -> None:
    """Write an ``invalid`` record for every impossible cell that the experiment counts as a result."""
    store = Store(sweep.settings.results)
    for point in sweep.points:
        if point.refusal is None:
            continue
        cause = Cause(kind="input", message=str(point.refusal))
        known = store.best(point.cell.id)
        if known and (known.status in FINISHED or known.cause == cause):
            continue
        block = Block(experiment=sweep.experiment, cells=(point.cell,), settings=sweep.settings)
        record = begin(point.cell, block, store.claim(point.cell.id))
        store.write(end(record, status=Status.INVALID, cause=cause))
