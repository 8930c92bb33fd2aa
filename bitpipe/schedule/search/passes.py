"""List scheduling and justification where messages take time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from bitpipe.schedule.list_scheduling import Graph, Placed
from bitpipe.schedule.search.problem import Problem


def list_pass(
    graph: Graph,
    transfer: int,
    priority: Sequence[float],
    cap: int | None,
    *,
    in_order: bool = False,
    patient: bool = False,
) -> Placed | None:
    """One event-driven pass; smaller priority first, ties by code.

    As :func:`bitpipe.schedule.list_scheduling.list_pass`, but a successor on another device is
    ready ``transfer`` ticks after its predecessor has ended.

    Args:
        graph: what to schedule.
        transfer: ticks between devices.
        priority: of every code.
        cap: most chunks that a device may hold.
        in_order: a device takes its chunks strictly by priority. Such a pass cannot deadlock if the
            priorities are the starts of an order within the cap: of what has not been done yet,
            the first by that order has its input, and what it follows on its device is done.
        patient: a device rather waits for a message under way than starts what comes after it.

    Returns:
        The makespan in ticks and every code's start, or None if the cap deadlocks it.
    """
    total, depth = len(priority), graph.depth
    devices, ticks, after, opens, closes = graph.devices, graph.ticks, graph.after, graph.opens, graph.closes
    limit = total if cap is None else cap
    missing = [len(codes) for codes in graph.before]
    arrival = [0] * total
    start = [-1] * total
    by_rank = sorted(range(total), key=priority.__getitem__)
    rank = [0] * total
    for position, code in enumerate(by_rank):
        rank[code] = position
    ready: list[tuple[list[int], list[int]]] = [([], []) for _ in range(depth)]  # rest, those that open
    push, pop = heapq.heappush, heapq.heappop
    for code in range(total):
        if not missing[code]:
            push(ready[devices[code]][opens[code]], rank[code])
    turns: list[list[int]] = [[] for _ in range(depth)]  # openers to come, the next one last
    if in_order:
        for code in reversed(by_rank):
            if opens[code]:
                turns[devices[code]].append(rank[code])
    coming: list[list[int]] = [[] for _ in range(depth)]  # ranks of what waits for a message
    busy, held = [False] * depth, [0] * depth
    events: list[tuple[int, int]] = []  # (time, code) ends; (time, total + code) arrives
    look = set(range(depth))
    now = placed = last = 0
    while True:
        for device in look:
            if busy[device]:
                continue
            rest, first = ready[device]
            room = held[device] < limit
            may_open = first and room and (not in_order or first[0] == turns[device][-1])
            if coming[device]:
                expected = min(coming[device])
                soonest = min(rest[0] if rest else total, first[0] if may_open else total)
                if expected < soonest and (room or not opens[by_rank[expected]]):
                    continue
            if may_open and (not rest or first[0] < rest[0]):
                code = by_rank[pop(first)]
                if in_order:
                    turns[device].pop()
                held[device] += 1
            elif rest:
                code = by_rank[pop(rest)]
            else:
                continue
            busy[device] = True
            start[code] = now
            placed += 1
            push(events, (now + ticks[code], code))
        if not events:
            break
        now = events[0][0]
        look = set()
        while events and events[0][0] == now:
            code = pop(events)[1]
            if code >= total:
                code -= total
                device = devices[code]
                push(ready[device][opens[code]], rank[code])
                if patient:
                    coming[device].remove(rank[code])
                look.add(device)
                continue
            last = now
            device = devices[code]
            busy[device] = False
            look.add(device)
            held[device] -= closes[code]
            for other in after[code]:
                away = devices[other] != device
                if away and now + transfer > arrival[other]:
                    arrival[other] = now + transfer
                missing[other] -= 1
                if not missing[other]:
                    if arrival[other] > now:
                        push(events, (arrival[other], total + other))
                        if patient:
                            coming[devices[other]].append(rank[other])
                    else:
                        push(ready[devices[other]][opens[other]], rank[other])
                        look.add(devices[other])
    return (last, start) if placed == total else None


def from_priority(
    problem: Problem, priority: Sequence[float], goal: int, rounds: int, *, patient: bool
) -> Iterator[Placed]:
    """Schedules within the cap from one seed: a list pass, then justification.

    A capped pass can deadlock. Then there are two ways on: to take chunks strictly by priority, and
    to justify the order without the cap, which is no answer but a good start.
    """
    graph, transfer, cap = problem.graph, problem.transfer, problem.cap
    found = list_pass(graph, transfer, priority, cap, patient=patient)
    starts = [found]
    if not found:
        starts = [
            list_pass(graph, transfer, priority, cap, in_order=True, patient=patient),
            list_pass(graph, transfer, priority, None, patient=patient),
        ]
    for place, start in enumerate(starts):
        if start:
            if place == 0:
                yield start
            yield from justified(problem, start[1], goal, rounds, patient=patient)


def justified(
    problem: Problem, start: Sequence[int], goal: int, rounds: int, *, patient: bool
) -> Iterator[Placed]:
    """Schedules within the cap by alternating right and left justification of one schedule."""
    graph, ticks = problem.graph, problem.graph.ticks
    back = graph.reversed()
    for _ in range(rounds):
        latest_end = [-(s + t) for s, t in zip(start, ticks, strict=True)]
        mirrored = _within_cap(problem, back, latest_end, patient)
        if not mirrored:
            return
        span, ends = mirrored
        start = [span - e - t for e, t in zip(ends, ticks, strict=True)]
        yield span, start
        if span <= goal:
            return
        found = _within_cap(problem, graph, start, patient)
        if not found:
            return
        start = found[1]
        yield found


def _within_cap(problem: Problem, graph: Graph, priority: Sequence[float], patient: bool) -> Placed | None:
    for in_order in (False, True):
        found = list_pass(graph, problem.transfer, priority, problem.cap, in_order=in_order, patient=patient)
        if found:
            return found
    return None
