"""A searched order on real ranks: trained right, and as fast as anything within the same memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest
from training import RandomData, job_of, links_of, model_of

from bitpipe.runtime.block import run_block
from bitpipe.runtime.processes.pool import Pool
from bitpipe.schedule import Costs, evaluate, generate, lower, peak_activations
from bitpipe.schedule.search import measured_costs, search

DEPTH, COUNT = 4, 8
MEMORY = 4.0  # D·Ma
BUILT_IN = ("dapple", "1f1b_int", "chimera", "mixpipe", "bitpipe")
NOISE = 0.02  # of a paired virtual run on a machine with other work


def merged(costs: Costs) -> Costs:
    """What stages of twice the size cost."""
    pairs = {}
    for name in ("forward", "backward"):
        values = getattr(costs, name)
        pairs[name] = tuple(a + b for a, b in zip(values[::2], values[1::2], strict=True))
    return replace(costs, **pairs)


@pytest.mark.slow  # fifty iterations of six jobs on four ranks
@pytest.mark.timeout(600)
def test_as_fast_as_every_method_within_the_same_memory(pool_of: Callable[[int], Pool]) -> None:
    model = model_of(hidden=64, sequence=32, vocabulary=512, dropout=0.0)  # the head makes stages unequal
    jobs = [
        job_of(m, DEPTH, COUNT, model=model, precision="fp32", sync="none", iterations=16, measured=12)
        for m in BUILT_IN
    ]
    jobs = [job for job in jobs if max(peak_activations(generate(job.schedule))) <= MEMORY]
    jobs.append(replace(jobs[-1], schedule=replace(jobs[-1].schedule, cap=2 * DEPTH)))
    assert {job.schedule.method for job in jobs} >= {"dapple", "chimera", "bitpipe"}
    links = [links_of(job, bandwidth=1e8, latency=1e-5) for job in jobs]
    pool, data = pool_of(DEPTH), RandomData()
    (probe,) = run_block([jobs[-1]], clock="virtual", links=links[-1:], data=data, pool=pool)
    costs = measured_costs(probe.timeline(), DEPTH)
    assert isinstance(costs.forward, tuple)
    assert max(costs.forward) > 1.05 * min(costs.forward), "the stages must be unequal, or this shows less"

    found = search(jobs[-1].schedule, costs)
    assert max(peak_activations(found.schedule)) <= MEMORY
    for job in jobs:
        schedule = generate(job.schedule)
        there = costs if schedule.chunks == 2 else merged(costs)
        assert found.makespan <= evaluate(schedule, there).makespan + 1e-9, job.schedule

    programs = [lower(generate(job.schedule), sync="none", tied=True) for job in jobs]
    programs.append(lower(found.schedule, sync="none", tied=True))
    results = run_block(
        [*jobs, jobs[-1]],
        clock="virtual",
        links=[*links, links[-1]],
        data=data,
        programs=programs,
        pool=pool,
    )
    assert [result.status for result in results] == ["ok"] * len(results)
    *others, searched = results
    assert searched.losses == pytest.approx(others[-1].losses, rel=1e-4)
    for job, other in zip(jobs, others, strict=True):
        pairs = zip(searched.seconds[4:], other.seconds[4:], strict=True)
        assert median(mine / theirs for mine, theirs in pairs) <= 1 + NOISE, job.schedule
