"""Local search on orders: exchange neighbours on the critical path, by annealing.

Only such an exchange can shorten a schedule without moving anything else, and it can never
deadlock: were there another way from the first action to the second, it would take longer than
going straight on, so the two would not touch on the critical path.
"""

from __future__ import annotations

import math
import random

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.search.problem import Problem

_COOLEST, _HOTTEST = 0.05, 1.0  # temperatures, in ticks of the shortest action


def anneal(problem: Problem, rows: Rows, goal: int, effort: int) -> tuple[int, Rows]:
    """Improve an order within the cap; the same way every time.

    Args:
        problem: what to order.
        rows: an order that keeps the cap and does not deadlock.
        goal: stop at this makespan, in ticks.
        effort: actions that may be placed by evaluations.

    Returns:
        Makespan in ticks and rows, never worse than those given.
    """
    codes, ticks = problem.codes, problem.graph.ticks
    source = random.Random(0)
    rows = [list(row) for row in rows]
    position = [0] * codes.total
    for row in rows:
        for place, code in enumerate(row):
            position[code] = place
    held = [_held_before(problem, row) for row in rows]
    start, end = problem.times(rows)
    now = best = round(max(end))
    best_rows = [list(row) for row in rows]
    rounds = max(1, effort // codes.total)
    shortest = min(ticks)
    for round_ in range(rounds):
        if best <= goal:
            break
        swaps = _swaps(problem, rows, position, held, start, end)
        if not swaps:
            break
        device, place = source.choice(swaps)
        _swap(problem, rows, position, held, device, place)
        new_start, new_end = problem.times(rows)
        span = round(max(new_end))
        heat = shortest * _HOTTEST * (_COOLEST / _HOTTEST) ** (round_ / rounds)
        if span <= now or source.random() < math.exp((now - span) / heat):
            now, start, end = span, new_start, new_end
            if now < best:
                best, best_rows = now, [list(row) for row in rows]
        else:
            _swap(problem, rows, position, held, device, place)
    return best, best_rows


def _held_before(problem: Problem, row: list[int]) -> list[int]:
    """Chunks held before each place of a row."""
    out, held = [], 0
    for code in row:
        out.append(held)
        held += problem.graph.opens[code] - problem.graph.closes[code]
    return out


def _swap(
    problem: Problem, rows: Rows, position: list[int], held: list[list[int]], device: int, place: int
) -> None:
    row = rows[device]
    first, second = row[place], row[place + 1]
    row[place], row[place + 1] = second, first
    position[second], position[first] = place, place + 1
    graph = problem.graph
    held[device][place + 1] = held[device][place] + graph.opens[second] - graph.closes[second]


def _swaps(
    problem: Problem,
    rows: Rows,
    position: list[int],
    held: list[list[int]],
    start: list[float],
    end: list[float],
) -> list[tuple[int, int]]:
    """(device, place) of pairs on a critical path whose exchange keeps cap, chain and first-in-first-out."""
    codes, graph = problem.codes, problem.graph
    length, devices = codes.length, graph.devices
    code = max(range(codes.total), key=end.__getitem__)
    found = []
    while start[code] > 0:
        device, place = devices[code], position[code]
        earlier = rows[device][place - 1] if place else -1
        step = code % length
        before = code - step + codes.before[step] if codes.before[step] >= 0 else -1
        if earlier >= 0 and end[earlier] == start[code]:
            same = earlier % length == step and codes.pipes[earlier // length] == codes.pipes[code // length]
            if earlier != before and not same:
                room = problem.cap is None or not graph.opens[code] or held[device][place - 1] < problem.cap
                if room:
                    found.append((device, place - 1))
            if before >= 0 and end[before] + problem.delay(before, code) == start[code] and earlier != before:
                code = before if len(found) % 2 else earlier
            else:
                code = earlier
        else:
            code = before
    return found
