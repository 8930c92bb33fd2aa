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

from bitpipe.schedule.codes import Codes, Rows

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

    def reversed(self) -> Graph:
        return Graph(
            after=self.before,
            before=self.after,
            devices=self.devices,
            ticks=self.ticks,
            opens=self.closes,
            closes=self.opens,
            depth=self.depth,
        )


def build_graph(codes: Codes) -> Graph:
    """Chain of every micro-batch, W after its I, first in first out per stage and kind."""
    length, stages, total = codes.length, codes.stages, codes.total
    split = codes.split_backward
    follows = [False] * codes.micro_batches  # micro-batch m−1 is in the same pipe
    for m in range(1, codes.micro_batches):
        follows[m] = codes.pipes[m] == codes.pipes[m - 1]
    before: list[tuple[int, ...]] = []
    after: list[tuple[int, ...]] = []
    for m in range(codes.micro_batches):
        base = m * length
        fifo = follows[m]
        next_fifo = m + 1 < codes.micro_batches and follows[m + 1]
        for step in range(length):
            code = base + step
            chain = code - stages if step >= 2 * stages else code - 1
            if step:
                before.append((chain, code - length) if fifo else (chain,))
            else:
                before.append((code - length,) if fifo else ())
            nexts = [code + 1] if step + 1 < 2 * stages else []
            if split and stages <= step < 2 * stages:
                nexts.append(code + stages)
            if next_fifo:
                nexts.append(code + length)
            after.append(tuple(nexts))
    back = 1 if split else 2
    pattern = [1] * stages + [back] * stages + ([1] * stages if split else [])
    opens = bytearray([1] * stages + [0] * (length - stages))
    closes = bytearray([0] * (length - stages) + [1] * stages)
    assert len(before) == total
    return Graph(
        after=after,
        before=before,
        devices=codes.devices,
        ticks=pattern * codes.micro_batches,
        opens=opens * codes.micro_batches,
        closes=closes * codes.micro_batches,
        depth=codes.placement.depth,
    )


def list_pass(graph: Graph, priority: Sequence[int], cap: int | None) -> Placed | None:
    """One event-driven pass; smaller priority first, ties by code.

    Returns:
        The makespan in ticks and every code's start, or None if the cap deadlocks it.
    """
    total, depth = len(priority), graph.depth
    devices, ticks, after = graph.devices, graph.ticks, graph.after
    opens, closes = graph.opens, graph.closes
    limit = total if cap is None else cap
    missing = [len(codes) for codes in graph.before]
    start = [-1] * total
    ready_open: list[list[int]] = [[] for _ in range(depth)]
    ready_rest: list[list[int]] = [[] for _ in range(depth)]
    by_rank = sorted(range(total), key=priority.__getitem__)
    rank = [0] * total
    for position, code in enumerate(by_rank):
        rank[code] = position
    for code in range(total):
        if not missing[code]:
            heapq.heappush((ready_open if opens[code] else ready_rest)[devices[code]], rank[code])
    busy, held = [False] * depth, [0] * depth
    ending: dict[int, list[int]] = {}
    moments: list[int] = []
    look: set[int] = set(range(depth))
    now = placed = 0
    push, pop = heapq.heappush, heapq.heappop
    while True:
        for device in look:
            if busy[device]:
                continue
            first, rest = ready_open[device], ready_rest[device]
            if (
                first
                and (not rest or first[0] < rest[0])
                and held[device] + opens[by_rank[first[0]]] <= limit
            ):
                code = by_rank[pop(first)]
                held[device] += opens[code]
            elif rest:
                code = by_rank[pop(rest)]
            else:
                continue
            busy[device] = True
            start[code] = now
            placed += 1
            end = now + ticks[code]
            if end in ending:
                ending[end].append(code)
            else:
                ending[end] = [code]
                push(moments, end)
        if not moments:
            break
        now = pop(moments)
        look = set()
        for code in ending.pop(now):
            device = devices[code]
            busy[device] = False
            look.add(device)
            held[device] -= closes[code]
            for other in after[code]:
                missing[other] -= 1
                if not missing[other]:
                    device = devices[other]
                    look.add(device)
                    push((ready_open if opens[other] else ready_rest)[device], rank[other])
    return (now, start) if placed == total else None


def from_priority(
    graph: Graph, priority: Sequence[int], cap: int | None, goal: int, rounds: int
) -> Iterator[Placed]:
    """Feasible schedules from one seed: a list pass, then justification."""
    found = list_pass(graph, priority, cap)
    if found:
        yield found
    else:  # a capped forward pass can deadlock; its uncapped order still is a good seed
        found = list_pass(graph, priority, None)
        assert found
    yield from justified(graph, found[1], cap, goal, rounds)


def justified(
    graph: Graph, start: Sequence[int], cap: int | None, goal: int, rounds: int
) -> Iterator[Placed]:
    """Feasible schedules by alternating right and left justification of one schedule."""
    back = graph.reversed()
    ticks = graph.ticks
    for _ in range(rounds):
        mirrored = list_pass(back, [-(s + t) for s, t in zip(start, ticks, strict=True)], cap)
        if not mirrored:
            return
        span, ends = mirrored
        start = [span - e - t for e, t in zip(ends, ticks, strict=True)]
        yield span, start
        if span <= goal:
            return
        found = list_pass(graph, start, cap)
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
