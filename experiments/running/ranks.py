"""A block on real ranks: links, data, run, records, wandb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bitpipe.runtime.block import run_block as run_jobs
from bitpipe.runtime.clocks.clock import Nominal
from bitpipe.runtime.processes.failure import RankFailure
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RunResult
from experiments.cell import CLOCKS, Cell
from experiments.records.record import Cause, Record, Status
from experiments.records.store import NotWritten
from experiments.running.attempts import Attempts, cause_of
from experiments.running.block import Block
from experiments.running.data import WITHOUT_DATA, dataset_of
from experiments.running.interrupt import signal_of
from experiments.running.link_scaling import Scale, links_of, scale_of
from experiments.running.repeats import combined
from experiments.running.run_record import devices_of, metrics_of, provenance_of
from experiments.running.targets import target_of
from experiments.running.virtual import run_virtual

_COMPILING = 300.0  # seconds in which a rank that compiles its layers need not show progress


class ReportingPool(Pool):
    """A pool that tells of a failed job at once, while the block's other jobs start again."""

    failed: Callable[[Sequence[Any], RankFailure], None] = staticmethod(lambda runs, failure: None)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return super().call(function, *arguments, **options)
        except RankFailure as failure:
            self.failed(arguments[0] if arguments else (), failure)
            raise


def run_ranks(
    block: Block,
    report: Callable[[Record, str], None],
    *,
    pool: Pool | None = None,
    begun: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Run a block on one pool of ranks and write a record for every cell.

    A failed cell's record is written when it fails; the others then start again from nothing
    on new ranks, so that no measurement is stitched together. A cell that fails in one repeat has
    failed: what its earlier repeats measured is left out.
    """
    attempts = Attempts(block, report)
    if begun is not None:
        for record in attempts.records.values():
            begun(record)
    own = pool or ReportingPool(block.ranks, watchdog=block.settings.watchdog_s)
    if isinstance(own, ReportingPool):
        own.failed = attempts.failed
    try:
        _run(block, attempts, own)
    except KeyboardInterrupt as error:
        attempts.cancelled(signal_of(error).name)
        raise
    except NotWritten:  # nothing more can be recorded
        raise
    except RankFailure as failure:
        attempts.all_failed(cause_of(failure.cause), Status(failure.status))
    except Exception as error:  # a defect of ours, or of a program: no cell of the block can run
        attempts.all_failed(Cause.of(error))
    finally:
        if pool is None:
            own.close()
    return [attempts.records[cell.id] for cell in block.cells]


def _run(block: Block, attempts: Attempts, pool: Pool) -> None:
    data = None if block.backend in WITHOUT_DATA else dataset_of(block.settings, block.cells[0].job.model)
    if block.backend == "virtual":
        run_virtual(attempts, pool, data)
        return
    clock, target = CLOCKS[block.backend], target_of(block.cells[0])
    scale = None  # under real time links are what they are
    if clock == "deadline" and block.cells[0].links == "scaled":
        scale = scale_of([(cell, _stage_forward(cell)) for cell in block.cells])

    def run(cells: Sequence[Cell]) -> Sequence[RunResult]:
        return run_jobs(
            [cell.job for cell in cells],
            clock=clock,
            links=[links_of(cell, scale) for cell in cells],
            data=data,
            out=[attempts.folder(cell) for cell in cells],
            nominal=[_nominal(cell) for cell in cells] if clock == "deadline" else None,
            target=target,
            pool=pool,
            watchdog=max(block.settings.watchdog_s, _COMPILING if target.compile != "none" else 0.0),
        )

    measured = attempts.in_rotation(run)
    for cell in attempts.left:
        attempts.finish(cell, **_changes(cell, measured[cell.id], scale, attempts))


def _stage_forward(cell: Cell) -> float:
    return float(cell.options["stage_forward_ms"]) / 1000


def _nominal(cell: Cell) -> Nominal:
    """What operations last under the deadline clock: a stage forward split over its chunks."""
    from bitpipe.schedule import placement_of

    chunk = _stage_forward(cell) / placement_of(cell.job.schedule).chunks
    return Nominal(forward=chunk, backward=2 * chunk)


def _changes(
    cell: Cell, repeats: Sequence[RunResult], scale: Scale | None, attempts: Attempts
) -> dict[str, Any]:
    """What a cell's results, one per repeat, say about its record."""
    record, result = attempts.records[cell.id], repeats[-1]
    more = {"link_scale": scale.document()} if scale else {}
    provenance = provenance_of(result, {**record.provenance, **more})
    late = max(repeats, key=lambda one: one.late_share)
    allowed = attempts.block.settings.max_lag
    if late.late_share > allowed:
        return {
            "status": Status.FAILED,
            "cause": _too_late(late, allowed),
            "metrics": {"lag_seconds": late.lag, "late_share": late.late_share},
            "provenance": provenance,
        }
    return {
        "status": Status.OK,
        "cause": None,
        "metrics": combined(
            [_metrics(one) for one in repeats], measured=cell.job.measured, measurement=attempts.measurement
        ),
        "devices": devices_of(cell, result),
        "provenance": provenance,
        "timeline": attempts.store.write_timeline(record, result.timeline())
        if attempts.block.settings.timelines
        else None,
    }


def _metrics(result: RunResult) -> dict[str, Any]:
    lag = {"lag_seconds": result.lag, "late_share": result.late_share} if result.origin == "emulated" else {}
    return {**metrics_of(result), **lag}


def _too_late(result: RunResult, allowed: float) -> Cause:
    """Why an emulated run does not count: its ranks could not keep up with their nominal times."""
    return Cause(
        kind="lag",
        message=f"ranks fell behind: an iteration ended late by {result.late_share:.1%} of its time, "
        f"max_lag={allowed:g} allows {allowed:.1%}; use a less busy machine or a longer "
        "backend.options.stage_forward_ms",
    )
