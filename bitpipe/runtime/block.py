"""Run a block: jobs of one comparison, on the same ranks, in rotation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bitpipe.cluster import Links
from bitpipe.data import Dataset
from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.runtime.clocks.clock import CLOCKS, Nominal
from bitpipe.runtime.clocks.operations import Operation
from bitpipe.runtime.processes.failure import RankFailure
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RankReport, RunResult
from bitpipe.runtime.run import Run, describe
from bitpipe.runtime.target import Target
from bitpipe.runtime.transport.channels import check_channels
from bitpipe.schedule import check, generate, lower
from bitpipe.schedule.program import Program


def run_block(
    jobs: Sequence[Job],
    *,
    clock: str,
    links: Sequence[Links],
    data: Dataset | None,
    out: Sequence[Path | None] | None = None,
    nominal: Sequence[Nominal] | None = None,
    programs: Sequence[Program] | None = None,
    passes: int = 1,
    costs: Mapping[Operation, float] | None = None,
    target: Target | None = None,
    pool: Pool | None = None,
    watchdog: float = 60.0,
    limit: float | None = None,
) -> list[RunResult]:
    """Run jobs of equal P on one pool of ranks, in rotation, iteration by iteration.

    Whatever happens on a rank, every job gets a result and no process is left. When a job fails,
    the others start again, from nothing, on new ranks.

    Args:
        jobs: with the same number of ranks.
        clock: ``virtual``, ``deadline`` (no compute) or ``wall``.
        links: per job, what transfers cost on its layout.
        data: where micro-batches come from; None under the deadline clock.
        out: per job, the folder of its ranks' logs (``rank<k>.jsonl``).
        nominal: per job, durations under the deadline clock.
        programs: per job, a program to run instead of the generated one.
        passes: program runs per optimizer step (gradient accumulation).
        costs: virtual clock: what operations count, as
            :meth:`bitpipe.runtime.clocks.pooling.Measurements.costs` finds it; else their processor time.
        target: what the ranks compute on; a CPU each unless said otherwise.
        pool: ranks to use; they stay up. Without it they are started and stopped here.
        watchdog: seconds without progress before a job counts as hung.
        limit: seconds for all jobs together.

    Raises:
        InputError: a job cannot run; nothing has been started.
        ProgramError: a program fails its static check; nothing has been started.
        RankFailure: the pool cannot start its ranks at all.
    """
    runs = prepare(
        jobs,
        clock=clock,
        links=links,
        data=data,
        out=out,
        nominal=nominal,
        programs=programs,
        passes=passes,
        costs=costs,
        target=target,
    )
    own = pool or Pool(jobs[0].ranks)
    if own.ranks != jobs[0].ranks:
        raise InputError("pool.ranks", own.ranks, f"the jobs need {jobs[0].ranks}")
    own.watchdog = watchdog
    results: dict[int, RunResult] = {}
    begun = time.monotonic()
    try:
        while left := [number for number in range(len(runs)) if number not in results]:
            mine = [runs[number] for number in left]
            remaining = None if limit is None else max(0.1, limit - (time.monotonic() - begun))
            for number, result in zip(left, _attempt(own, mine, remaining), strict=True):
                if result is not None:
                    results[number] = result
    finally:
        if pool is None:
            own.close()
    return [results[number] for number in range(len(runs))]


def prepare(
    jobs: Sequence[Job],
    *,
    clock: str,
    links: Sequence[Links],
    data: Dataset | None,
    out: Sequence[Path | None] | None = None,
    nominal: Sequence[Nominal] | None = None,
    programs: Sequence[Program] | None = None,
    passes: int = 1,
    costs: Mapping[Operation, float] | None = None,
    target: Target | None = None,
) -> list[Run]:
    """Generate, lower and check every job's program; see :func:`run_block`."""
    if not jobs:
        raise InputError("jobs", "none", "a block has at least one job")
    for job in jobs:
        if job.ranks != jobs[0].ranks:
            raise InputError("jobs", job.ranks, f"all jobs of a block have {jobs[0].ranks} ranks")
    runs = []
    for number, job in enumerate(jobs):
        if programs is not None:
            program = programs[number]
        else:
            program = lower(
                generate(job.schedule), sync=job.sync, width=job.width, tied=job.model.tied_embeddings
            )
        check(program)
        if target is not None and target.transport == "nccl":
            check_channels(program, links[number].layout)
        if links[number].layout.size != job.ranks:
            raise InputError("links.layout", links[number].layout.size, f"the job has {job.ranks} ranks")
        runs.append(
            Run(
                job=job,
                program=program,
                links=links[number],
                clock=clock,
                data=data,
                nominal=None if nominal is None else nominal[number],
                out=None if out is None else out[number],
                passes=passes,
                costs=costs,
                target=target or Target(),
            )
        )
    return runs


def _attempt(pool: Pool, runs: Sequence[Run], limit: float | None) -> list[RunResult | None]:
    """Run all jobs; if one fails, only that one has a result."""
    from bitpipe.runtime.train import train_block

    started = time.time()

    def where(rank: int, job: int, iteration: int, mark: int) -> str:
        return describe(runs[job], rank, iteration, mark)

    try:
        reports = pool.call(train_block, runs, limit=limit, describe=where)
    except RankFailure as failure:
        if failure.job < 0:
            raise
        failed: list[RunResult | None] = [None] * len(runs)
        everyone = range(len(runs)) if failure.cause.kind == "timeout" else [failure.job]
        for number in everyone:
            failed[number] = _result(runs[number], started, failure=failure)
        return failed
    return list(finished(runs, reports, started))


def finished(runs: Sequence[Run], reports: Sequence[Sequence[RankReport]], started: float) -> list[RunResult]:
    """Results of jobs that ran to their end."""
    return [_result(run, started, reports=rows) for run, rows in zip(runs, reports, strict=True)]


def _result(
    run: Run, started: float, *, reports: Sequence[RankReport] = (), failure: RankFailure | None = None
) -> RunResult:
    return RunResult(
        job=run.job,
        program=run.program,
        layout=run.links.layout,
        status="ok" if failure is None else failure.status,
        origin=CLOCKS[run.clock],
        cause=None if failure is None else failure.cause,
        message_bytes=run.message_bytes,
        reports=tuple(reports),
        started=started,
        finished=time.time(),
    )
