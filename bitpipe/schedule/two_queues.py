"""The unit and its concatenation by one rule: two fixed queues per device (sections 1.3 and 1.5).

A device has a queue of its forwards and one of its backwards, each in the unit's order, units one
after another. It does the next backward if its input is there, else the next forward if its input
is there and the device holds fewer than v·D chunks. For N = D this is the paper's unit exactly;
for N = K·D it lets the next unit's forwards fill the end of the one before.
"""

from __future__ import annotations

from itertools import chain

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.list_scheduling import build_graph, list_pass, rows_by_start


def unit_orders(codes: Codes) -> tuple[Rows, Rows]:
    """Each device's forwards and backwards in the unit's order, units one after another.

    With i the micro-batch's number in its unit and direction, forwards go by 2i + s and backwards
    by 4i + 2(vD−1−s); a unit is ⌊D/2⌋ micro-batches per direction.
    """
    stages, depth = codes.stages, codes.placement.depth
    per_unit = max(1, depth // 2)
    by_unit = 8 * (stages + per_unit)
    forwards: list[list[tuple[int, int]]] = [[] for _ in range(depth)]
    backwards: list[list[tuple[int, int]]] = [[] for _ in range(depth)]
    for micro_batch, (pipe, local) in enumerate(zip(codes.pipes, codes.locals, strict=True)):
        unit, i = divmod(local, per_unit)
        devices = codes.step_devices[pipe]
        base = micro_batch * codes.length
        key = unit * by_unit + 2 * i
        for stage in range(stages):
            forwards[devices[stage]].append((key + stage, base + stage))
        key = unit * by_unit + 4 * i
        for step in range(stages):
            backwards[devices[stages + step]].append((key + 2 * step, base + stages + step))
    return (
        [[code for _, code in sorted(queue)] for queue in forwards],
        [[code for _, code in sorted(queue)] for queue in backwards],
    )


def unit(codes: Codes) -> Rows:
    """The closed form of the unit, N = D even (section 1.3): makespan 3D + 2(D−2)/v exactly.

    Device r warms up with (v−1)D + D/2 + min(r, D−1−r) forwards, then does a forward and a backward
    in turn until the forwards run out. The queues below reach the same makespan; here the
    activation peaks are the smallest.
    """
    depth, chunks = codes.placement.depth, codes.placement.chunks
    rows: Rows = []
    for device, (forwards, backwards) in enumerate(zip(*unit_orders(codes), strict=True)):
        warm_up = (chunks - 1) * depth + depth // 2 + min(device, depth - 1 - device)
        row = forwards[:warm_up]
        for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
            row += (forward, backward)
        rows.append(row + backwards[len(forwards) - warm_up :])
    return rows


def two_queues(codes: Codes, cap: int) -> Rows:
    """Units one after another, N = K·D, with at most ``cap`` chunks held per device.

    One list pass: the queues are precedence, and a backward goes before a forward.
    """
    graph = build_graph(codes, chain(*unit_orders(codes)))
    priority = ([1] * codes.stages + [0] * codes.stages) * codes.micro_batches
    found = list_pass(graph, priority, cap)
    assert found, "the queues of whole units cannot deadlock"
    return rows_by_start(codes, found[1])
