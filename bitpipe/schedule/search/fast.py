"""The fast search: justification from many seeds, then from the best order, shaken."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_scheduling import ROUNDS, Placed, from_priority
from bitpipe.schedule.search.problem import Problem

# How far an action's priority is moved, in mean durations of an action; taken in turn.
_SHAKES = (1.0, 3.0, 0.5, 8.0, 2.0, 20.0)
_SHAKEN_ROUNDS = 3


def improve(problem: Problem, seeds: Iterable[Sequence[float]], goal: int, effort: int) -> Placed | None:
    """The best order that ``effort`` placed actions lead to; the same one every time.

    Args:
        problem: what to order.
        seeds: priorities to start from, all of which are tried.
        goal: stop at this makespan, in ticks.
        effort: how many actions the passes from shaken priorities may place.

    Returns:
        Makespan and starts in ticks, or None if every seed deadlocks under the cap.
    """
    best: Placed | None = None
    graph, cap = problem.graph, problem.cap
    for seed in seeds:
        for patient in (False, True) if problem.transfer else (False,):
            for found in from_priority(graph, seed, cap, goal, ROUNDS, insist=True, patient=patient):
                if best is None or found[0] < best[0]:
                    best = found
        if best and best[0] <= goal:
            return best
    if best is None:
        return None
    source = random.Random(0)
    ticks = graph.ticks
    mean = sum(ticks) / len(ticks)
    current, round_ = best, 0
    while effort > 0 and best[0] > goal:
        shake = _SHAKES[round_ % len(_SHAKES)] * mean
        round_ += 1
        priority = [s + shake * (source.random() - 0.5) for s in current[1]]
        patient = problem.transfer > 0 and round_ % 4 > 0
        near: Placed | None = None
        for found in from_priority(graph, priority, cap, goal, _SHAKEN_ROUNDS, insist=True, patient=patient):
            effort -= len(ticks)
            if near is None or found[0] < near[0]:
                near = found
        if near and near[0] <= current[0]:  # equally good orders are walked through
            current = near
        if current[0] < best[0]:
            best = current
    return best


def starts_of(problem: Problem, rows: Rows) -> list[float]:
    """When every code starts if the devices follow ``rows``; a seed.

    Raises:
        Deadlock: the rows wait for each other.
    """
    return problem.times(rows)[0]


def lattices(problem: Problem) -> Iterator[list[float]]:
    """Priorities at about the time of each action in an endless row of units of ⌊D/2⌋ micro-batches.

    The lattice of :func:`bitpipe.schedule.list_rule.lattice` at these costs: an action's place in
    its own micro-batch is when a lone micro-batch would get there, and a unit lasts as long as the
    busiest device works on it.
    """
    codes, ticks = problem.codes, problem.graph.ticks
    stages, depth = codes.stages, codes.placement.depth
    both = codes.placement.bidirectional
    per_unit = max(1, depth // 2) if both else depth
    work = [0] * depth
    for table in codes.step_devices:
        for step in range(codes.length):
            work[table[step]] += ticks[step]
    period = max(work) * per_unit
    forward = 2 * sum(ticks[:stages]) / stages
    backward = 2 * sum(ticks[stages : 2 * stages]) / stages
    for stretch_f, stretch_b, stretch_period in (
        (1, 1, 1),
        (2, 1, 1),
        (1, 1.5, 0.98),
        (1, 1.5, 1),
        (2, 2, 0.98),
        (1.5, 1.5, 1),
    ):
        out: list[float] = []
        for pipe, local in zip(codes.pipes, codes.locals, strict=True):
            unit, i = divmod(local, per_unit)
            base, heads = stretch_period * period * unit, problem.heads[pipe]
            out += [base + stretch_f * forward * i + heads[step] for step in range(stages)]
            out += [base + stretch_b * backward * i + heads[step] - 0.5 for step in range(stages, 2 * stages)]
            late = depth * backward / 2
            out += [
                base + stretch_b * backward * i + heads[step] + late
                for step in range(2 * stages, codes.length)
            ]
        yield out
