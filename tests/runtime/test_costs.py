"""Common costs: which operations are the same, what they cost, and clocks that count it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from training import RandomData, job_of, links_of

from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.runtime.block import prepare, run_block
from bitpipe.runtime.clocks.operations import Operation
from bitpipe.runtime.clocks.pooling import Measurements, iterations, performed
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RunResult
from bitpipe.schedule import Kind
from bitpipe.schedule.costs import ListedCosts
from bitpipe.simulate.engine import simulate

F, B = Operation(kind=Kind.F, layers=4), Operation(kind=Kind.B, layers=4, fused=True)


def measured(pool: Pool, *jobs: Job, **options: Any) -> list[RunResult]:
    links = [links_of(job, devices_per_node=2, bandwidth=2e7, latency=2e-4) for job in jobs]
    results = run_block(jobs, clock="virtual", links=links, data=RandomData(), pool=pool, **options)
    assert [result.status for result in results] == ["ok"] * len(jobs)
    return results


@pytest.fixture(scope="module")
def results(pool_of: Callable[[int], Pool]) -> list[RunResult]:
    """BitPipe with and without V, and DAPPLE, whose chunks are twice as large, in rotation."""
    few = {"iterations": 4, "measured": 3, "precision": "fp32"}
    bitpipe = job_of("bitpipe", 4, 8, **few)
    cyclic = replace(bitpipe, schedule=replace(bitpipe.schedule, placement="cyclic"))
    return measured(pool_of(4), bitpipe, cyclic, job_of("dapple", 4, 8, **few))


def test_variants_of_a_method_perform_the_same_operations_and_other_chunk_sizes_others(
    results: list[RunResult],
) -> None:
    full, cyclic, dapple = (
        {one for one in performed(result).values() if one.kind is not Kind.STEP} for result in results
    )
    assert full == cyclic
    assert not full & dapple
    ends = {(one.kind, one.layers, one.embedding, one.head) for one in full}
    assert ends == {
        (k, 1, *at) for k in (Kind.F, Kind.B) for at in ((True, False), (False, False), (False, True))
    }


def test_the_mean_of_an_operation_is_over_runs_ranks_and_counted_iterations(results: list[RunResult]) -> None:
    costs = {cost.operation: cost for cost in Measurements.of([[result] for result in results]).costs()}
    assert set(costs) == {one for result in results for one in performed(result).values()}
    for operation, cost in costs.items():
        every = [
            seconds
            for result in results
            for iteration in iterations(result)[1:]
            for seconds in iteration.get(operation, ())
        ]
        each = [seconds for seconds in every if seconds <= 2 * np.median(every)]
        assert (cost.count, cost.outliers) == (len(each), len(every) - len(each))
        assert cost.mean == pytest.approx(np.mean(each), rel=1e-12)
        assert cost.spread == pytest.approx(np.std(each), rel=1e-6, abs=1e-9)


def test_ranks_that_count_costs_take_the_time_that_the_simulator_finds_for_them(
    pool_of: Callable[[int], Pool], results: list[RunResult]
) -> None:
    """Two code paths that share only the arithmetic of links."""
    seconds = {cost.operation: cost.seconds for cost in Measurements.of([[one] for one in results]).costs()}
    for result in measured(pool_of(4), *(result.job for result in results), costs=seconds):
        links = links_of(result.job, devices_per_node=2, bandwidth=2e7, latency=2e-4)
        durations = {key: seconds[operation] for key, operation in performed(result).items()}
        told = simulate(result.program, ListedCosts(durations, result.size), links).makespan
        assert result.seconds == pytest.approx([told] * 4, rel=1e-9)
        assert result.durations() == pytest.approx(durations, rel=1e-9)


def test_a_cost_that_is_missing_is_named_before_anything_starts() -> None:
    job = job_of("dapple", 4, 4)
    with pytest.raises(InputError, match=r"costs=Operation\(kind=.*missing: the program performs it"):
        prepare([job], clock="virtual", links=[links_of(job)], data=RandomData(), costs={F: 1.0, B: 1.0})
    with pytest.raises(InputError, match="clock=wall: costs are counted by the virtual clock"):
        prepare([job], clock="wall", links=[links_of(job)], data=RandomData(), costs={})


def test_padding_is_an_operation_of_its_own_and_so_is_a_step_that_clips(
    pool_of: Callable[[int], Pool],
) -> None:
    padded = job_of("bitpipe", 4, 6, iterations=1, measured=1, precision="fp32")
    padded = replace(padded, schedule=replace(padded.schedule, pad=True))
    clipped = replace(padded, clip_norm=1.0)
    one, other = measured(pool_of(4), padded, clipped)
    assert {operation.empty for operation in performed(one).values()} == {True, False}
    steps = [
        {operation for operation in performed(result).values() if operation.kind is Kind.STEP}
        for result in (one, other)
    ]
    assert not steps[0] & steps[1]


def measurements(rows: Sequence[Sequence[float]], operations: tuple[Operation, ...] = (F, B)) -> Measurements:
    """Iterations of (run, seconds of one of each operation), all counted."""
    sums = np.array([row[1:] for row in rows])
    return Measurements(
        operations=operations,
        runs=np.array([row[0] for row in rows]),
        numbers=np.arange(len(rows)),
        counted=np.ones(len(rows), bool),
        counts=np.ones_like(sums),
        sums=sums,
        squares=sums**2,
        outliers=np.zeros(len(operations), int),
    )


def test_resampled_means_vary_as_means_do() -> None:
    """The variance of a mean of n is s²/n, with the unbiased s²."""
    generator = np.random.default_rng(3)
    values = generator.normal(1.0, 0.1, 8)
    found = measurements([(0, value, 2.0) for value in values]).resampled(4000, seed=0)
    assert found is not None
    assert np.std([one[F] for one in found]) == pytest.approx(np.std(values, ddof=1) / 8**0.5, rel=0.05)
    assert [one[B] for one in found] == pytest.approx([2.0] * 4000)


def test_every_run_is_resampled_on_its_own() -> None:
    """Two runs that differ, each without spread: nothing varies."""
    found = measurements([(0, 1.0, 1.0), (0, 1.0, 1.0), (1, 3.0, 1.0), (1, 3.0, 1.0)]).resampled(50, seed=0)
    assert found is not None
    assert [one[F] for one in found] == pytest.approx([2.0] * 50)


def test_a_single_iteration_says_nothing_of_its_spread() -> None:
    assert measurements([(0, 1.0, 1.0)]).resampled(50, seed=0) is None


PLACES = [
    Operation(kind=Kind.F, layers=layers, embedding=embedding, head=head)
    for layers in (2, 4, 8)
    for embedding, head in ((True, False), (False, False), (False, True))
]


def line(one: Operation) -> float:
    """A made-up machine's: 0.1 and 0.5 a layer, 0.2 for the embedding, 0.7 for the head."""
    return 0.1 + 0.5 * one.layers + 0.2 * one.embedding + 0.7 * one.head


def test_costs_that_lie_on_a_line_stay_there() -> None:
    found = measurements([[0, *map(line, PLACES)]], tuple(PLACES)).costs()
    assert [cost.seconds for cost in found] == pytest.approx([line(one) for one in PLACES])


def test_a_line_through_all_chunk_sizes_averages_noise() -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, (400, len(PLACES)))
    true = np.array([line(one) for one in PLACES])
    off = [
        [(cost.seconds - t, cost.mean - t) for cost, t in zip(costs, true, strict=True)]
        for costs in (measurements([[0, *row]], tuple(PLACES)).costs() for row in true + noise)
    ]
    fitted, plain = np.array(off).std(axis=0).mean(axis=0)
    assert plain == pytest.approx(0.05, rel=0.1)
    assert fitted == pytest.approx(0.05 * (4 / 9) ** 0.5, rel=0.1), "four numbers instead of nine"


def test_with_one_chunk_size_costs_are_means() -> None:
    three = tuple(PLACES[:3])
    found = measurements([[0, 1.0, 2.0, 5.0], [0, 3.0, 2.0, 4.0]], three).costs()
    assert [cost.seconds for cost in found] == pytest.approx([2.0, 2.0, 4.5])
