"""What an operation costs: the mean over all runs, ranks and iterations that performed the same one.

Runs of one block train in turns on the same ranks, and most of their operations are the same
(:class:`~bitpipe.runtime.clocks.operations.Operation`). Shared, their costs leave between two runs only
what their orders differ in. Two things are done about noise:

* What took more than :data:`OUTLIER` times the median was disturbed, and is left out.
* A forward (or backward) of k layers costs a + b·k, and what the embedding or the head adds. That line goes
  through all chunk sizes at once, weighted by how often each was measured; the costs lie on it. With one
  chunk size they are the means.

How sure a number made of the costs is, is found by resampling whole iterations (Efron & Tibshirani 1993,
chapter 8), of every run on its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitpipe.runtime.clocks.operations import Operation, operations_of
from bitpipe.runtime.plan import Plan
from bitpipe.runtime.result import RunResult
from bitpipe.schedule.action import Action, Kind

Floats = NDArray[np.float64]
OUTLIER = 2.0
"""Times the median of an operation: beyond lies what an interrupt or another program has done to it."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One operation's seconds.

    Attributes:
        operation: which.
        seconds: what clocks count.
        count: how often it was measured, outliers not counted.
        outliers: how many were left out.
        mean: over those that count, in seconds.
        spread: standard deviation of a single one, in seconds.
    """

    operation: Operation
    seconds: float
    count: int
    outliers: int
    mean: float
    spread: float

    def document(self) -> dict[str, Any]:
        """Plain data, flat."""
        return {
            **self.operation.document(),
            "seconds": self.seconds,
            "count": self.count,
            "outliers": self.outliers,
            "mean_seconds": self.mean,
            "spread_seconds": self.spread,
        }


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Measured seconds of every operation, summed per iteration of every run.

    Attributes:
        operations: the columns.
        runs: per row, which run the iteration belongs to.
        numbers: per row, which of the run's iterations it is, over all repeats in turn.
        counted: per row, whether it counts; the first iterations warm up.
        counts, sums, squares: (iterations, operations) how often, seconds, seconds²; in rows that count
            without outliers.
        outliers: per operation, how many were left out.
    """

    operations: tuple[Operation, ...]
    runs: NDArray[np.int64]
    numbers: NDArray[np.int64]
    counted: NDArray[np.bool_]
    counts: Floats
    sums: Floats
    squares: Floats
    outliers: NDArray[np.int64]

    @classmethod
    def of(cls, results: Sequence[Sequence[RunResult]]) -> Measurements:
        """From at least one run; ``results[run]`` are its repeats."""
        rows: list[tuple[int, int, bool]] = []
        found: list[dict[Operation, Floats]] = []
        for run, repeats in enumerate(results):
            number = 0
            for result in repeats:
                first = result.job.iterations - result.job.measured
                for iteration, seconds in enumerate(iterations(result)):
                    rows.append((run, number, iteration >= first))
                    found.append({operation: np.array(each) for operation, each in seconds.items()})
                    number += 1
        runs, numbers, counted = (np.array(column) for column in zip(*rows, strict=True))
        operations = tuple(dict.fromkeys(operation for row in found for operation in row))
        table = np.zeros((3, len(rows), len(operations)))
        outliers = np.zeros(len(operations), int)
        for column, operation in enumerate(operations):
            counting = [
                row[operation]
                for row, counts in zip(found, counted, strict=True)
                if counts and operation in row
            ]
            limit = OUTLIER * np.median(np.concatenate(counting))
            for at, row in enumerate(found):
                every = row.get(operation, np.zeros(0))
                each = every[every <= limit] if counted[at] else every
                outliers[column] += len(every) - len(each)
                table[:, at, column] = len(each), each.sum(), (each**2).sum()
        return cls(
            operations=operations,
            runs=runs,
            numbers=numbers,
            counted=counted,
            counts=table[0],
            sums=table[1],
            squares=table[2],
            outliers=outliers,
        )

    @cached_property
    def _totals(self) -> tuple[Floats, Floats]:
        """Per operation, how often it was measured in iterations that count, and its mean."""
        counts = self.counts[self.counted].sum(axis=0)
        return counts, self.sums[self.counted].sum(axis=0) / counts

    @cached_property
    def _line(self) -> Floats:
        """The matrix that puts the means of operations onto their lines."""
        weights, line = self._totals[0] ** 0.5, np.eye(len(self.operations))
        alike: dict[Operation, list[int]] = defaultdict(list)
        for column, one in enumerate(self.operations):
            if one.kind is not Kind.STEP:
                alike[replace(one, layers=0, embedding=False, head=False)].append(column)
        for columns in alike.values():
            rows = [
                (1, one.layers, one.embedding, one.head) for one in map(self.operations.__getitem__, columns)
            ]
            design, weight = np.array(rows, float), weights[columns]
            line[np.ix_(columns, columns)] = design @ np.linalg.pinv(design * weight[:, None]) * weight
        return line

    def costs(self) -> tuple[Cost, ...]:
        """Of every operation, from the iterations that count."""
        counts, means = self._totals
        squares = self.squares[self.counted].sum(axis=0) / counts
        spreads = np.sqrt(np.maximum(0.0, squares - means**2))
        columns = (self._line @ means, counts, self.outliers, means, spreads)
        return tuple(
            Cost(
                operation=operation,
                seconds=float(seconds),
                count=int(count),
                outliers=int(outliers),
                mean=float(mean),
                spread=float(spread),
            )
            for operation, seconds, count, outliers, mean, spread in zip(
                self.operations, *columns, strict=True
            )
        )

    def by_iteration(self) -> list[dict[Operation, float]]:
        """What every operation costs by the first iteration of all runs alone, by the second, …"""
        everyone = np.arange(self.numbers.max() + 1)[:, None] == self.numbers
        return self._means(everyone.astype(float))

    def resampled(self, draws: int, seed: int) -> list[dict[Operation, float]] | None:
        """What every operation costs by ``draws`` resamples of whole iterations.

        From each run's n iterations that count, n − 1 are drawn with replacement, which makes the variance
        of means what it is, not (n − 1)/n of it (Rao & Wu 1988). None where a run has a single one.
        """
        rows = [np.flatnonzero(self.counted & (self.runs == run)) for run in np.unique(self.runs)]
        if min(len(mine) for mine in rows) < 2:
            return None
        generator = np.random.default_rng(seed)
        weights = np.zeros((draws, len(self.runs)))
        for mine in rows:
            n = len(mine)
            weights[:, mine] = generator.multinomial(n - 1, [1 / n] * n, size=draws)
        return self._means(weights)

    def _means(self, weights: Floats) -> list[dict[Operation, float]]:
        """Costs from weighted iterations; where none of them has an operation, its mean over all."""
        counts, (_, overall) = weights @ self.counts, self._totals
        means = np.where(counts > 0, weights @ self.sums / np.maximum(counts, 1), overall)
        return [dict(zip(self.operations, row, strict=True)) for row in (means @ self._line.T).tolist()]


def iterations(result: RunResult) -> list[dict[Operation, list[float]]]:
    """Per iteration of a run, the seconds of every operation on all its ranks."""
    found: list[dict[Operation, list[float]]] = [defaultdict(list) for _ in result.seconds]
    for report in result.reports:
        plan = Plan(program=result.program, layout=result.layout, rank=report.rank)
        lengths = report.spans[:, :, 1] - report.spans[:, :, 0]
        for position, operation in operations_of(plan, result.job).items():
            for seconds, iteration in zip(lengths[:, position].tolist(), found, strict=True):
                iteration[operation].append(seconds)
    return found


def performed(result: RunResult) -> dict[tuple[int, Action], Operation]:
    """The operation of every (rank, compute action or STEP) of a run's program."""
    found: dict[tuple[int, Action], Operation] = {}
    for rank in range(result.layout.size):
        plan = Plan(program=result.program, layout=result.layout, rank=rank)
        for position, operation in operations_of(plan, result.job).items():
            found[rank, plan.actions[position]] = operation
    return found
