"""The list rule: any N, v and activation cap (the paper's early forward is one such cap).

Event-driven list scheduling that never idles a device that has something to do, improved by
justification: schedule the reversed problem by latest end first, then the original one by the
start times so found, and so on. Micro-batches of one pipe pass each stage first in, first out.
A forward waits while its device holds the cap; in the reversed problem the last action that needs
a chunk (B, or W) waits instead.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.costs import WORTH

# Actions that the passes of one search may place: keeps the largest schedules within seconds.
_BUDGET = 2_000_000
ROUNDS = 8
"""Justifications, right and left, of one seed."""


Placed = tuple[int, list[int]]
"""A makespan in ticks and every code's start."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A precedence graph with one device, duration and role per code."""

    after: list[tuple[int, ...]]
    before: list[tuple[int, ...]]
    devices: list[int]
    ticks: list[int]
    opens: bytearray  # how many chunks of activations the code takes
    closes: bytearray  # how many it gives back
    depth: int
    transfer: int = 0  # ticks of a message to another device

    def reversed(self) -> Graph:
        return Graph(
            after=self.before,
            before=self.after,
            devices=self.devices,
            ticks=self.ticks,
            opens=self.closes,
            closes=self.opens,
            depth=self.depth,
            transfer=self.transfer,
        )


def build_graph(codes: Codes, queues: Iterable[Sequence[int]] | None = None) -> Graph:
    """What steps wait for, and what comes before them in a queue.

    Args:
        codes: the steps.
        queues: codes that come one after another; by default the micro-batches of every pipe pass each
            step first in, first out.
    """
    length, count, steps = codes.length, codes.micro_batches, codes.before
    after_step: list[list[int]] = [[] for _ in steps]
    for step, other in enumerate(steps):
        if other >= 0:
            after_step[other].append(step)
    before: list[tuple[int, ...]] = []
    after: list[tuple[int, ...]] = []
    for base in range(0, count * length, length):
        before += [(base + other,) if other >= 0 else () for other in steps]
        after += [tuple([base + next_ for next_ in nexts]) for nexts in after_step]
    for queue in _first_in_first_out(codes) if queues is None else queues:
        for earlier, later in pairwise(queue):
            before[later] += (earlier,)
            after[earlier] += (later,)
    return Graph(
        after=after,
        before=before,
        devices=codes.devices,
        ticks=[WORTH[kind] for kind, _ in codes.step_names] * count,
        opens=bytearray(change > 0 for change in codes.keeps) * count,
        closes=bytearray(change < 0 for change in codes.keeps) * count,
        depth=codes.placement.depth,
    )


def _first_in_first_out(codes: Codes) -> Iterator[list[int]]:
    for pipe in codes.placement.pipes:
        bases = [m * codes.length for m, mine in enumerate(codes.pipes) if mine == pipe]
        for step in range(codes.length):
            yield [base + step for base in bases]


def list_pass(
    graph: Graph,
    priority: Sequence[float],
    cap: int | None,
    *,
    in_order: bool = False,
    patient: bool = False,
) -> Placed | None:
    """One event-driven pass; smaller priority first, ties by code.

    Args:
        graph: what to schedule.
        priority: of every code.
        cap: most chunks that a device may hold.
        in_order: a device takes its chunks strictly by priority. Such a pass cannot deadlock if the
            priorities are the starts of an order within the cap: of what has not been done yet,
            the first by that order has its input, and what it follows on its device is done.
        patient: a device rather waits for a message under way than starts what comes after it.

    Returns:
        The makespan in ticks and every code's start, or None if the cap deadlocks it.
    """
    total, depth, transfer = len(priority), graph.depth, graph.transfer
    devices, ticks, after = graph.devices, graph.ticks, graph.after
    opens, closes = graph.opens, graph.closes
    limit = total if cap is None else cap
    missing = [len(codes) for codes in graph.before]
    arrival = [0] * total
    start = [-1] * total
    ready_open: list[list[int]] = [[] for _ in range(depth)]
    ready_rest: list[list[int]] = [[] for _ in range(depth)]
    by_rank = sorted(range(total), key=priority.__getitem__)
    rank = [0] * total
    for position, code in enumerate(by_rank):
        rank[code] = position
    push, pop = heapq.heappush, heapq.heappop
    for code in range(total):
        if not missing[code]:
            push((ready_open if opens[code] else ready_rest)[devices[code]], rank[code])
    turns: list[list[int]] = [[] for _ in range(depth)]  # ranks of openers to come, the next one last
    if in_order:
        for code in reversed(by_rank):
            if opens[code]:
                turns[devices[code]].append(rank[code])
    coming: list[list[int]] = [[] for _ in range(depth)]  # ranks of what waits for a message
    busy, held = [False] * depth, [0] * depth
    due: dict[int, list[int]] = {}  # code: it ends; total + code: its message arrives
    moments: list[int] = []
    look: set[int] = set(range(depth))
    now = placed = 0
    while True:
        for device in look:
            if busy[device]:
                continue
            first, rest = ready_open[device], ready_rest[device]
            may_open = (
                first
                and held[device] + opens[by_rank[first[0]]] <= limit
                and (not in_order or first[0] == turns[device][-1])
            )
            if patient and coming[device]:
                expected = min(coming[device])
                soonest = min(rest[0] if rest else total, first[0] if may_open else total)
                if expected < soonest and held[device] + opens[by_rank[expected]] <= limit:
                    continue
            if may_open and (not rest or first[0] < rest[0]):
                code = by_rank[pop(first)]
                if in_order:
                    turns[device].pop()
                held[device] += opens[code]
            elif rest:
                code = by_rank[pop(rest)]
            else:
                continue
            busy[device] = True
            start[code] = now
            placed += 1
            end = now + ticks[code]
            if end in due:
                due[end].append(code)
            else:
                due[end] = [code]
                push(moments, end)
        if not moments:
            break
        now = pop(moments)
        look = set()
        for code in due.pop(now):
            if code >= total:
                code -= total
                device = devices[code]
                push((ready_open if opens[code] else ready_rest)[device], rank[code])
                if patient:
                    coming[device].remove(rank[code])
                look.add(device)
                continue
            device = devices[code]
            busy[device] = False
            look.add(device)
            held[device] -= closes[code]
            arrived = now + transfer
            for other in after[code]:
                target = devices[other]
                if transfer and target != device:
                    arrival[other] = arrived  # the latest so far: time goes on
                missing[other] -= 1
                if missing[other]:
                    continue
                ready = arrival[other]
                if ready > now:
                    if ready in due:
                        due[ready].append(total + other)
                    else:
                        due[ready] = [total + other]
                        push(moments, ready)
                    if patient:
                        coming[target].append(rank[other])
                else:
                    look.add(target)
                    push((ready_open if opens[other] else ready_rest)[target], rank[other])
    return (now, start) if placed == total else None


def from_priority(
    graph: Graph,
    priority: Sequence[float],
    cap: int | None,
    goal: int,
    rounds: int,
    *,
    insist: bool = False,
    patient: bool = False,
) -> Iterator[Placed]:
    """Schedules within the cap from one seed: a list pass, then justification.

    A capped pass can deadlock, but the order found without the cap is a good start all the same.

    Args:
        graph, priority, cap, patient: as of :func:`list_pass`.
        goal: stop at this makespan, in ticks.
        rounds: justifications, right and left.
        insist: after a deadlock take chunks strictly by priority, too.
    """
    found = list_pass(graph, priority, cap, patient=patient)
    starts = [found]
    if not found:
        strict = list_pass(graph, priority, cap, in_order=True, patient=patient) if insist else None
        starts = [strict, list_pass(graph, priority, None, patient=patient)]
    if starts[0]:
        yield starts[0]
    for start in filter(None, starts):
        yield from justified(graph, start[1], cap, goal, rounds, insist=insist, patient=patient)


def justified(
    graph: Graph,
    start: Sequence[int],
    cap: int | None,
    goal: int,
    rounds: int,
    *,
    insist: bool = False,
    patient: bool = False,
) -> Iterator[Placed]:
    """Schedules within the cap by alternating right and left justification of one schedule."""
    back = graph.reversed()
    ticks = graph.ticks

    def within_cap(graph: Graph, priority: Sequence[int]) -> Placed | None:
        found = list_pass(graph, priority, cap, patient=patient)
        return found or (list_pass(graph, priority, cap, in_order=True, patient=patient) if insist else None)

    for _ in range(rounds):
        mirrored = within_cap(back, [-(s + t) for s, t in zip(start, ticks, strict=True)])
        if not mirrored:
            return
        span, ends = mirrored
        start = [span - e - t for e, t in zip(ends, ticks, strict=True)]
        yield span, start
        if span <= goal:
            return
        found = within_cap(graph, start)
        if not found:
            return
        start = found[1]
        yield found


def search(
    graph: Graph, seeds: Iterable[Sequence[int]], cap: int | None, goal: int, rounds: int = ROUNDS
) -> Placed | None:
    """The best schedule that the seeds lead to; stops at ``goal`` ticks or when the budget is spent.

    Returns:
        The makespan in ticks and every code's start, or None if every seed deadlocks.
    """
    best: Placed | None = None
    spent = 0
    for seed in seeds:
        for found in from_priority(graph, seed, cap, goal, rounds):
            spent += len(graph.ticks)
            if best is None or found[0] < best[0]:
                best = found
            if best[0] <= goal or spent > _BUDGET:
                return best
    return best


def rows_by_start(codes: Codes, start: Sequence[int]) -> Rows:
    """Every device's codes in the order of their starts."""
    rows: Rows = [[] for _ in range(codes.placement.depth)]
    devices = codes.devices
    for code in sorted(range(codes.total), key=start.__getitem__):
        rows[devices[code]].append(code)
    return rows
