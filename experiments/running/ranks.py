"""A block on real ranks: links, data, run, records, wandb."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bitpipe.runtime.block import run_block as run_jobs
from bitpipe.runtime.clocks.clock import Nominal
from bitpipe.runtime.processes.failure import RankFailure
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import Cause as RunCause
from bitpipe.runtime.result import RunResult
from bitpipe.schedule.action import Kind
from experiments.cell import CLOCKS, Cell
from experiments.records.record import Cause, Record, Status
from experiments.records.store import NotWritten, Store
from experiments.running.attempt import begin, end, traffic_metrics
from experiments.running.block import Block
from experiments.running.data import WITHOUT_DATA, dataset_of
from experiments.running.finishing import finish
from experiments.running.interrupt import signal_of
from experiments.running.link_scaling import Scale, links_of, scale_of
from experiments.running.repeats import together
from experiments.running.targets import target_of

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
    attempts = _Begun(block, report)
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
        attempts.all_failed(_cause(failure.cause), Status(failure.status))
    except Exception as error:  # a defect of ours, or of a program: no cell of the block can run
        attempts.all_failed(Cause.of(error))
    finally:
        if pool is None:
            own.close()
    return [attempts.records[cell.id] for cell in block.cells]


class _Begun:
    """The block's attempts, and which of them have ended."""

    def __init__(self, block: Block, report: Callable[[Record, str], None]) -> None:
        self.block, self.report = block, report
        self.store = Store(block.settings.results)
        self.records = {cell.id: begin(cell, block, self.store.claim(cell.id)) for cell in block.cells}
        self.ended: set[str] = set()
        self.measurement = secrets.token_hex(6)

    def folder(self, cell: Cell) -> Path:
        return self.store.attempt(cell.id, self.records[cell.id].attempt)

    def failed(self, runs: Sequence[Any], failure: RankFailure) -> None:
        """Write the record of a job that failed just now."""
        if failure.cause.kind == "timeout" or not 0 <= failure.job < len(runs):
            return  # everyone's or nobody's: the results will say
        for cell in self.block.cells:
            if runs[failure.job].out == self.folder(cell):
                self.finish(cell, status=Status(failure.status), cause=_cause(failure.cause))

    def cancelled(self, signal: str) -> None:
        """Say of every unfinished attempt that somebody stopped it; wandb hears nothing of it."""
        cause = Cause(kind="signal", message="interrupted", signal=signal)
        for cell in self.block.cells:
            if cell.id not in self.ended:
                self.store.write(end(self.records[cell.id], status=Status.CANCELLED, cause=cause))

    def all_failed(self, cause: Cause, status: Status = Status.FAILED) -> None:
        for cell in self.block.cells:
            self.finish(cell, status=status, cause=cause)

    def finish(self, cell: Cell, **changes: Any) -> None:
        """End an attempt: write its record, and wandb's copy, once."""
        if cell.id in self.ended:
            return
        self.ended.add(cell.id)
        record = finish(end(self.records[cell.id], **changes), self.store, self.block.settings.wandb)
        self.records[cell.id] = record
        self.report(record, str(cell))


def _run(block: Block, begun: _Begun, pool: Pool) -> None:
    cells = block.cells
    clock, target = CLOCKS[block.backend], target_of(cells[0])
    data = None if block.backend in WITHOUT_DATA else dataset_of(block.settings, cells[0].job.model)
    scale = None
    if cells[0].links == "scaled":
        if clock == "deadline":
            scale = scale_of(cells[0], _nominal(cells[0]).forward)
        else:
            scale = _measured_scale(begun, pool, data)
    measured: dict[str, list[RunResult]] = {cell.id: [] for cell in cells}
    for number in range(block.settings.repeats):
        left = [cell for cell in cells if cell.id not in begun.ended]
        if number % 2:
            left.reverse()
        if not left:
            break
        results = run_jobs(
            [cell.job for cell in left],
            clock=clock,
            links=[links_of(cell, scale) for cell in left],
            data=data,
            out=[begun.folder(cell) for cell in left],
            nominal=[_nominal(cell) for cell in left] if clock == "deadline" else None,
            steady=_steady(cells[0]),
            target=target,
            pool=pool,
            watchdog=max(block.settings.watchdog_s, _COMPILING if target.compile != "none" else 0.0),
        )
        for cell, result in zip(left, results, strict=True):
            measured[cell.id].append(result)
            if result.status != "ok":
                begun.finish(cell, **_changes(cell, [result], scale, begun))
    for cell in cells:
        if cell.id not in begun.ended:
            begun.finish(cell, **_changes(cell, measured[cell.id], scale, begun))


def _measured_scale(begun: _Begun, pool: Pool, data: Any) -> Scale | None:
    """The block's scale, by the first cell that can be measured; None if no cell can.

    Raises:
        RankFailure: the ranks do not start.
    """
    for cell in begun.block.cells:
        try:
            return scale_of(cell, _forward_seconds(cell, pool, data))
        except RankFailure as failure:
            if failure.job < 0:
                raise
            begun.finish(cell, status=Status(failure.status), cause=_cause(failure.cause))
    return None


def _forward_seconds(cell: Cell, pool: Pool, data: Any) -> float:
    """Mean chunk forward of the cell's model on these ranks: one warm-up iteration, then one that counts.

    Raises:
        RankFailure: the ranks failed.
    """
    spec = cell.job.schedule
    few = replace(spec, micro_batches=min(spec.micro_batches, spec.depth), cap=None, early_forward=False)
    job = replace(cell.job, schedule=few, iterations=2, measured=1)
    links = [links_of(cell, None)]
    (result,) = run_jobs([job], clock="virtual", links=links, data=data, steady=_steady(cell), pool=pool)
    if result.status != "ok":
        assert result.cause is not None
        message = f"measuring a chunk's forward: {result.cause.message}"
        raise RankFailure(result.status, replace(result.cause, message=message), 0)
    return fmean(s for (_, action), s in result.durations().items() if action.kind is Kind.F)


def _steady(cell: Cell) -> bool:
    """Whether virtual time is freed from what other programs do to this machine's speed."""
    return bool(cell.options.get("steady", True))


def _nominal(cell: Cell) -> Nominal:
    """What operations last under the deadline clock: a stage forward split over its chunks."""
    from bitpipe.schedule import placement_of

    stage = float(cell.options["stage_forward_ms"]) / 1000
    chunk = stage / placement_of(cell.job.schedule).chunks
    return Nominal(forward=chunk, backward=2 * chunk)


def _changes(cell: Cell, repeats: Sequence[RunResult], scale: Scale | None, begun: _Begun) -> dict[str, Any]:
    """What a cell's results, one per repeat, say about its record."""
    record, result = begun.records[cell.id], repeats[-1]
    provenance = dict(record.provenance)
    if scale is not None:
        provenance["link_scale"] = scale.document()
    if result.status != "ok":
        assert result.cause is not None
        return {
            "status": Status(result.status),
            "cause": _cause(result.cause),
            "provenance": provenance,
        }
    provenance["hosts"] = sorted({rank.host for rank in result.reports})
    provenance["devices"] = sorted({rank.device for rank in result.reports})
    late = max(repeats, key=lambda one: one.late_share)
    allowed = begun.block.settings.max_lag
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
        "metrics": together(
            [_metrics(one) for one in repeats], measured=cell.job.measured, measurement=begun.measurement
        ),
        "devices": _devices(cell, result),
        "provenance": provenance,
        "timeline": begun.store.write_timeline(record, result.timeline())
        if begun.block.settings.timelines
        else None,
    }


def _metrics(result: RunResult) -> dict[str, Any]:
    seconds, counted = list(result.seconds), list(result.seconds[-result.job.measured :])
    metrics: dict[str, Any] = {
        "samples_per_s": result.samples_per_s,
        "iteration_seconds": fmean(counted),
        "iteration_seconds_median": median(counted),
        "iteration_seconds_min": min(counted),
        "iteration_seconds_max": max(counted),
        "iterations_seconds": seconds,
        "global_batch": result.job.global_batch,
        "bubble_ratio": result.timeline().bubble_ratio,
        **traffic_metrics(result.traffic),
    }
    if result.reports[0].skipped:
        metrics["skipped_steps"] = result.reports[0].skipped
    if result.paces:
        metrics["paces"] = list(result.paces)
    if result.norms:
        metrics["gradient_norms"] = list(result.norms)
    if result.origin != "emulated":  # which computes nothing
        metrics["losses"] = list(result.losses)
    else:
        metrics["lag_seconds"] = result.lag
        metrics["late_share"] = result.late_share
    return metrics


def _too_late(result: RunResult, allowed: float) -> Cause:
    """Why an emulated run does not count: its ranks could not keep up with their nominal times."""
    return Cause(
        kind="lag",
        message=f"ranks fell behind: an iteration ended late by {result.late_share:.1%} of its time, "
        f"max_lag={allowed:g} allows {allowed:.1%}; use a less busy machine or a longer "
        "backend.options.stage_forward_ms",
    )


def _devices(cell: Cell, result: RunResult) -> dict[str, list[Any]]:
    layout, vectors = cell.layout, {name: list(values) for name, values in result.vectors.items()}
    held = [values for name, values in vectors.items() if name.endswith("_bytes")]
    if held:
        vectors["peak_memory_bytes"] = [sum(parts) for parts in zip(*held, strict=True)]
    if "peak_activation_bytes" in vectors:
        vectors["activation_bytes"] = vectors.pop("peak_activation_bytes")
    return {
        "replica": [replica for replica, _ in layout.places],
        "device": [device for _, device in layout.places],
        "node": [layout.node(rank) for rank in range(layout.size)],
        **vectors,
    }


def _cause(cause: RunCause) -> Cause:
    return Cause(
        kind=cause.kind,
        message=cause.message,
        rank=cause.rank,
        traceback=cause.traceback,
        signal=cause.signal,
    )
