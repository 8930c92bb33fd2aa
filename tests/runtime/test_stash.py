"""What ranks count while they run: activations between forward and backward, and their layers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import RandomData, emulated, free_links, job_of, links_of, model_of

from bitpipe.job import Job
from bitpipe.runtime.block import finished, run_block
from bitpipe.runtime.clocks.clock import Nominal
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RunResult
from bitpipe.runtime.run import Run
from bitpipe.runtime.train import train_block
from bitpipe.runtime.training.stash import Stash
from bitpipe.schedule import generate, lower, peak_activations

QUICK = Nominal(forward=1e-3, backward=2e-3)
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpipe", {}),
    ("dapple", {}),
    ("dapple", {"split_backward": True}),
    ("1f1b_int", {}),
    ("chimera", {}),
    ("bitpipe", {}),
    ("bitpipe", {"early_forward": True}),
    ("bitpipe", {"split_backward": True}),
)
JOBS = [
    job_of(method, 4, count, iterations=2, measured=1, precision="fp32", **changes)
    for method, changes in CASES
    for count in (4, 8)
]


def run(clock: str, jobs: list[Job], pool: Pool) -> list[RunResult]:
    if clock == "deadline":
        results = emulated(jobs, [QUICK] * len(jobs), pool)
    else:
        results = run_block(
            jobs, clock=clock, links=[links_of(job) for job in jobs], data=RandomData(), pool=pool
        )
    assert {result.status for result in results} == {"ok"}
    return results


def by_device(result: RunResult, name: str) -> tuple[float, ...]:
    pairs = zip(result.layout.places, result.vectors[name], strict=True)
    return tuple(value for (_, device), value in sorted(pairs))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), max_size=40))
def test_the_peak_is_the_most_layers_kept_at_once(keys: list[tuple[int, int, int]]) -> None:
    """A key that comes again is taken out."""
    layers = {0: 3, 1: 2, 2: 2}
    stash, kept, most = Stash(layers), set[tuple[int, int, int]](), 0
    for key in keys:
        if key in kept:
            assert stash.take(key) == str(key)
            kept.remove(key)
        else:
            stash.put(key, str(key))
            kept.add(key)
        most = max(most, sum(layers[stage] for _, stage, _ in kept))
        assert (len(stash), stash.peak) == (len(kept), most)


def test_nothing_is_kept_twice_or_taken_twice() -> None:
    stash = Stash({0: 1})
    stash.put((0, 0, 0))
    with pytest.raises(KeyError):
        stash.put((0, 0, 0))
    stash.take((0, 0, 0))
    with pytest.raises(KeyError):
        stash.take((0, 0, 0))


@pytest.mark.parametrize("clock", ["deadline", "virtual"])
def test_what_ranks_hold_is_what_their_schedule_says(pool_of: Callable[[int], Pool], clock: str) -> None:
    """Also after a second iteration: nothing is left over from the first."""
    seen = set()
    for job, result in zip(JOBS, run(clock, JOBS, pool_of(4)), strict=True):
        schedule = generate(job.schedule)
        peaks = by_device(result, "peak_activation_ma")
        assert peaks == peak_activations(schedule), job.schedule
        held = tuple(len(schedule.placement.held[device]) / schedule.chunks for device in range(4))
        assert by_device(result, "weights_m_theta") == held, job.schedule
        seen.add(peaks)
    assert len(seen) > 5, "or the schedules do not tell a right count from a wrong one"


@pytest.mark.parametrize("clock", ["deadline", "virtual"])
def test_it_is_counted_from_what_ran_and_not_from_what_the_schedule_says(
    pool_of: Callable[[int], Pool], clock: str
) -> None:
    """Ranks that run GPipe's rows and are told that it is DAPPLE hold what GPipe holds."""
    dapple, gpipe = (job_of(name, 4, 8, iterations=1, measured=1) for name in ("dapple", "gpipe"))
    rows = lower(generate(gpipe.schedule), sync="eager", tied=True)
    program = replace(rows, schedule=generate(dapple.schedule))
    mislabelled = Run(
        job=dapple,
        program=program,
        links=free_links(dapple),
        clock=clock,
        data=RandomData(),
        nominal=QUICK,
    )
    reports = pool_of(4).call(train_block, [mislabelled])
    (result,) = finished([mislabelled], reports, time.time())
    assert by_device(result, "peak_activation_ma") == (8, 8, 8, 8)
    assert peak_activations(program.schedule) == (4, 3, 2, 1)


@pytest.mark.parametrize("clock", ["deadline", "virtual"])
def test_stages_of_unequal_size_count_by_their_layers(pool_of: Callable[[int], Pool], clock: str) -> None:
    """Ten layers on four devices are 3, 3, 2 and 2; a quarter of the model has 2.5."""
    job = job_of("dapple", 4, 4, iterations=1, measured=1, model=model_of(layers=10))
    (result,) = run(clock, [job], pool_of(4))
    assert by_device(result, "peak_activation_ma") == (4 * 3 / 2.5, 3 * 3 / 2.5, 2 * 2 / 2.5, 1 * 2 / 2.5)
    assert by_device(result, "weights_m_theta") == (3 / 2.5, 3 / 2.5, 2 / 2.5, 2 / 2.5)
