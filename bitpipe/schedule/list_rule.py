"""The list rule: any N, v, placement and activation cap; early forward is one such cap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bitpipe.errors import InputError
from bitpipe.schedule.bounds import lower_bound
from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.list_scheduling import (
    ROUNDS,
    Graph,
    Placed,
    build_graph,
    justified,
    list_pass,
    rows_by_start,
    search,
)


def list_rule(codes: Codes, cap: int | None) -> Rows:
    """The best order that the seeds lead to under ``cap`` chunks per device.

    Raises:
        InputError: the cap is below v, so that not even one micro-batch fits.
    """
    placement = codes.placement
    if cap is not None and cap < placement.chunks:
        raise InputError("cap", cap, f"one micro-batch alone holds {placement.chunks} chunks on a device")
    bound = lower_bound(placement, codes.micro_batches, cap=cap, split_backward=codes.split_backward)
    graph = build_graph(codes)
    goal = round(bound * placement.chunks)
    few = (codes.micro_batches + 1) // 2
    if (
        placement.bidirectional
        and placement.chunks > 1
        and not codes.split_backward
        and codes.micro_batches < placement.depth
    ):
        # With N < D each further micro-batch of a pipe takes four ticks. An exact solver proves that
        # for small cases, longer searches never beat it for D ≤ 16: the search need not go on.
        goal = max(goal, 3 * codes.stages + 4 * (few - 1))
    found = search(graph, _seeds(codes), cap, goal)
    if cap is not None and (not found or (found[0] > goal and cap < codes.stages)):
        safe = admitted(codes, graph, cap)
        tried = [safe, *justified(graph, safe[1], cap, goal, ROUNDS), *([found] if found else [])]
        found = min(tried, key=lambda placed: placed[0])
    assert found
    return rows_by_start(codes, found[1])


def lattice(
    codes: Codes,
    *,
    per_unit: int,
    period: int,
    forward_step: int = 2,
    backward_step: int = 4,
    forward_stage: int = 1,
    backward_stage: int = 2,
) -> list[int]:
    """Priorities: about the time at which each action would fall in an endless row of units.

    With u the unit and i the number in the unit, F at period·u + forward_step·i + forward_stage·s
    and B at period·u + vD + backward_stage·(vD−1−s) + backward_step·i. With a split backward I and W
    take one tick each: I at … + vD + (vD−1−s) + 2i, and W fills in D ticks later.
    """
    stages = codes.stages
    forward = [forward_stage * step for step in range(stages)]
    weight: list[int] = []
    if codes.split_backward:
        back = [stages + step for step in range(stages)]
        weight = [step + codes.placement.depth for step in back]
        backward_step = 2
    else:
        back = [stages + backward_stage * step for step in range(stages)]
    out: list[int] = []
    for local in codes.locals:
        unit, i = divmod(local, per_unit)
        f, b = period * unit + forward_step * i, period * unit + backward_step * i
        # Doubled, so that on a tie a backward (even) goes before a forward (odd).
        out += [2 * (f + step) + 1 for step in forward]
        out += [2 * (b + step) for step in back]
        out += [2 * (b + step) + 1 for step in weight]
    return out


# Steps of i forward and backward, change of the period, steps of s forward and backward: found by
# trying a grid. Under the cap D·Ma they close gaps to the bound that the unit's own lattice leaves.
_VARIANTS = (
    (2, 6, -1, 1, 3),
    (4, 4, 0, 2, 3),
    (2, 6, 0, 1, 3),
    (2, 4, -1, 1, 3),
    (4, 8, -1, 2, 2),
    (2, 6, 1, 1, 2),
    (4, 6, -1, 2, 3),
)


def _seeds(codes: Codes) -> Iterator[list[int]]:
    depth, chunks = codes.placement.depth, codes.placement.chunks
    both = codes.placement.bidirectional
    half = max(1, depth // 2) if both else depth
    one = (6 if both else 3) * chunks  # ticks of a device for one micro-batch of each pipe
    period = one * half
    yield lattice(codes, per_unit=half, period=period)
    if both and not codes.split_backward:
        for forward_step, backward_step, change, forward_stage, backward_stage in _VARIANTS:
            yield lattice(
                codes,
                per_unit=half,
                period=period + change,
                forward_step=forward_step,
                backward_step=backward_step,
                forward_stage=forward_stage,
                backward_stage=backward_stage,
            )
    yield lattice(codes, per_unit=codes.micro_batches, period=0, forward_step=one, backward_step=one)
    yield lattice(codes, per_unit=half, period=max(1, period - half))
    yield lattice(codes, per_unit=half, period=period, forward_step=4)


def admitted(codes: Codes, graph: Graph, cap: int) -> Placed:
    """A schedule that keeps any cap ≥ v: at most ⌊C/v⌋ micro-batches are on their way.

    A micro-batch holds at most v chunks on a device, so the cap cannot be reached, and nothing can
    deadlock. At C = v one micro-batch goes at a time.
    """
    in_flight = cap // codes.placement.chunks
    order = sorted(range(codes.micro_batches), key=lambda m: (codes.locals[m], codes.pipes[m]))
    before, after = list(graph.before), list(graph.after)
    for earlier, later in zip(order, order[in_flight:], strict=False):
        last, first = (earlier + 1) * codes.length - 1, later * codes.length
        before[first] += (last,)
        after[last] += (first,)
    found = list_pass(replace(graph, before=before, after=after), lattice(codes, per_unit=1, period=1), None)
    assert found
    return found
