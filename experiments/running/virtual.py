"""Virtual runs: measure what operations cost, pool, time every cell by the costs that all share.

1. Measure: the block's cells train in rotation; every operation's processor time is kept.
2. Pool: an operation costs its mean over all cells, ranks and counted iterations
   (:mod:`bitpipe.runtime.clocks.pooling`). The links get their weight against these costs.
3. Time: every cell trains one more step from the beginning. Its ranks compute and send as always, their
   clocks count the pooled costs; that iteration's time is the cell's. The simulator, which shares no code
   with the ranks but the arithmetic of links, must find the same time for the same costs.
4. Resample: whole iterations of the first phase; the simulator's times for each resample say how sure
   the ratio of any two cells is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from bitpipe.cluster import Links
from bitpipe.runtime.block import run_block as run_jobs
from bitpipe.runtime.clocks.operations import Operation
from bitpipe.runtime.clocks.pooling import Measurements, performed
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RunResult
from bitpipe.schedule.action import Kind
from bitpipe.schedule.costs import ListedCosts
from bitpipe.simulate.engine import trace
from experiments.cell import Cell
from experiments.records.record import Cause, Status
from experiments.running.attempts import Attempts
from experiments.running.bootstrap import DRAWS, interval
from experiments.running.link_scaling import Scale, links_of, scale_of
from experiments.running.run_record import (
    devices_of,
    iteration_metrics,
    provenance_of,
    rest_metrics,
    step_metrics,
)

TOLERANCE = 1e-9
"""By which share the ranks' time and the simulator's may differ: rounding."""

Seconds = Mapping[Operation, float]


def run_virtual(attempts: Attempts, pool: Pool, data: Any) -> None:
    """Run a block's cells under virtual time and finish their records."""
    watchdog = attempts.block.settings.watchdog_s

    def run(cells: Sequence[Cell]) -> Sequence[RunResult]:
        return run_jobs(
            [cell.job for cell in cells],
            clock="virtual",
            links=[links_of(cell, None) for cell in cells],  # what they cost is counted later
            data=data,
            out=[attempts.folder(cell) for cell in cells],
            pool=pool,
            watchdog=watchdog,
        )

    measured = attempts.in_rotation(run)
    cells = attempts.left
    if not cells:
        return
    pooled = Measurements.of([measured[cell.id] for cell in cells])
    costs = pooled.costs()
    seconds = {cost.operation: cost.seconds for cost in costs}
    scale = _scale(cells, measured, seconds) if cells[0].links == "scaled" else None
    links = [links_of(cell, scale) for cell in cells]
    timed = run_jobs(
        [replace(cell.job, iterations=1, measured=1) for cell in cells],
        clock="virtual",
        links=links,
        data=data,
        costs=seconds,
        pool=pool,
        watchdog=watchdog,
    )
    every = pooled.by_iteration()
    resamples = pooled.resampled(DRAWS, seed=attempts.block.cells[0].job.seed)
    more = {"link_scale": scale.document()} if scale else {}
    for cell, link, result in zip(cells, links, timed, strict=True):
        provenance = {**attempts.records[cell.id].provenance, **more}
        if result.status != "ok":
            attempts.broken(cell, result, provenance=provenance)
            continue
        simulated = _simulated(result, link)
        told = simulated(seconds)
        cause = disagreement(result.seconds[-1], told)
        if cause is not None:
            attempts.finish(cell, status=Status.FAILED, cause=cause, provenance=provenance)
            continue
        mine = set(performed(result).values())
        metrics = {
            "samples_per_s": result.samples_per_s,
            "iteration_seconds": result.seconds[-1],
            "simulator_error": apart(result.seconds[-1], told),
            **iteration_metrics([simulated(one) for one in every], cell.job.measured),
            **step_metrics(measured[cell.id][-1]),
            **rest_metrics(result),
            **_repeated(attempts),
            **_resampled([simulated(one) for one in resamples or ()], result),
        }
        attempts.finish(
            cell,
            status=Status.OK,
            cause=None,
            metrics=metrics,
            costs=[cost.document() for cost in costs if cost.operation in mine],
            devices=devices_of(cell, result),
            provenance=provenance_of(result, provenance),
            timeline=attempts.store.write_timeline(attempts.records[cell.id], result.timeline())
            if attempts.block.settings.timelines
            else None,
        )


def apart(ranks: float, simulated: float) -> float:
    """By which share two times of one iteration differ."""
    return abs(simulated / ranks - 1)


def disagreement(ranks: float, simulated: float) -> Cause | None:
    """Why a run does not count: its ranks' clocks and the simulator say different seconds."""
    off = apart(ranks, simulated)
    if off <= TOLERANCE:
        return None
    return Cause(
        kind="self_check",
        message=f"the ranks' clocks say {ranks:.9g} s, the simulator {simulated:.9g} s for the same costs "
        f"and links: {off:.1e} apart, allowed is {TOLERANCE:g}",
    )


def _simulated(result: RunResult, links: Links) -> Callable[[Seconds], float]:
    operations = performed(result)

    def makespan(seconds: Seconds) -> float:
        listed = {key: seconds[operation] for key, operation in operations.items()}
        return trace(result.program, ListedCosts(listed, result.size), links).makespan

    return makespan


def _scale(cells: Sequence[Cell], measured: Mapping[str, Sequence[RunResult]], seconds: Seconds) -> Scale:
    """The scale of the block's links."""

    def stage_forward(cell: Cell) -> float:
        result = measured[cell.id][-1]
        found = performed(result).items()
        chunks = {action.stage: seconds[one] for (_, action), one in found if action.kind is Kind.F}
        return fmean(chunks.values()) * result.program.schedule.placement.chunks

    return scale_of([(cell, stage_forward(cell)) for cell in cells])


def _repeated(attempts: Attempts) -> dict[str, Any]:
    repeats = attempts.block.settings.repeats
    return {"measurement": attempts.measurement} | ({"repeats": repeats} if repeats > 1 else {})


def _resampled(seconds: Sequence[float], result: RunResult) -> dict[str, Any]:
    """The resampled makespans, and the interval of the throughput that they give."""
    if not seconds:
        return {}
    low, high = interval(result.seconds[-1], seconds)
    batch = result.job.global_batch
    return {
        "bootstrap_seconds": list(seconds),
        "samples_per_s_low": batch / high,
        "samples_per_s_high": batch / low,
    }
