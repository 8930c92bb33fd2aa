"""The unit and its concatenation by one rule: two fixed queues per device (sections 1.3 and 1.5).

A device has a queue of its forwards and one of its backwards, each in the unit's order, units one
after another. It does the next backward if its input is there, else the next forward if its input
is there and the device holds fewer than v·D chunks. For N = D this is the paper's unit exactly;
for N = K·D it lets the next unit's forwards fill the end of the one before.
"""

from __future__ import annotations

import heapq

from bitpipe.schedule.codes import Codes, Rows

F_TICKS, B_TICKS = 1, 2


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


def two_queues(codes: Codes, forwards: Rows, backwards: Rows, cap: int) -> Rows:
    """Run the queues of whole units, N = K·D, with at most ``cap`` chunks held per device."""
    length, stages, depth = codes.length, codes.stages, codes.placement.depth
    devices = codes.devices
    done = bytearray(codes.total)
    rows: Rows = [[] for _ in range(depth)]
    next_f, next_b, held = [0] * depth, [0] * depth, [0] * depth
    busy = [False] * depth
    ends: list[tuple[int, int]] = []
    look = set(range(depth))
    now = 0
    while True:
        for device in look:
            if busy[device]:
                continue
            index = next_b[device]
            if index < len(backwards[device]) and done[backwards[device][index] - 1]:
                code = backwards[device][index]
                next_b[device] = index + 1
                held[device] -= 1
                heapq.heappush(ends, (now + B_TICKS, code))
            else:
                index = next_f[device]
                if index == len(forwards[device]) or held[device] == cap:
                    continue
                code = forwards[device][index]
                if code % length and not done[code - 1]:
                    continue
                next_f[device] = index + 1
                held[device] += 1
                heapq.heappush(ends, (now + F_TICKS, code))
            busy[device] = True
            rows[device].append(code)
        if not ends:
            break
        now = ends[0][0]
        look = set()
        while ends and ends[0][0] == now:
            code = heapq.heappop(ends)[1]
            done[code] = 1
            device = devices[code]
            busy[device] = False
            look.add(device)
            if code % length + 1 < 2 * stages:
                look.add(devices[code + 1])
    assert all(done), "the queues of whole units cannot deadlock"
    return rows
