"""Lowering: from the compute order to what every device does, by small passes.

1. :func:`messages`: what crosses devices, per ordered pair of devices in the sender's order;
2. :func:`post_receives`: where each receive is posted: in the sender's order, a few actions before
   it is needed;
3. :func:`assign_slots`: receive buffers, reused after their consumer's last use;
4. :func:`sync_points`: where gradient all-reduces start, in one order on all devices;
5. :func:`assemble`: the rows, numbered in one total order.

Why it cannot deadlock: every ordered pair of devices is a channel that delivers in order, and both
ends use the same order, the sender's. A receive is posted before the device waits for it or for a
later one of the same channel. So a WAIT can only wait for its SEND, which directly follows the
compute action that produces the data, and those are ordered by the times at which the schedule
executes, which :func:`~bitpipe.schedule.evaluation.start_times` shows to exist.
"""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from bitpipe.errors import InputError, choose
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.collector import paused
from bitpipe.schedule.costs import UNIT
from bitpipe.schedule.evaluation import start_times
from bitpipe.schedule.placement import Placement
from bitpipe.schedule.program import Instruction, Program
from bitpipe.schedule.schedule import Schedule

AHEAD = 3
"""How many compute actions before its consumer a receive is posted, where its sender's order lets it."""
SYNCS = ("eager", "late", "none")


class Message(NamedTuple):
    """One transfer: the code that consumes it, and the two devices."""

    consumer: int
    source: int
    target: int


class Point(NamedTuple):
    """Where a collective starts: after ``position`` compute actions of its device."""

    position: int
    action: Action


@paused()
def lower(schedule: Schedule, *, sync: str, width: int = 1, tied: bool = False) -> Program:
    """Add communication, gradient sync and the optimizer step to a schedule.

    Args:
        sync: ``eager`` starts a stage's all-reduce right after its last backward (section 1.4.1),
            ``late`` after all compute of the device, ``none`` leaves it out.
        width: W; a stage held by one rank only (W = 1, one pipe) needs no all-reduce.
        tied: the first and last stage share the embedding.

    Raises:
        InputError: unknown ``sync``, or a stage's two replicas share a device (odd D).
        ProgramError: the schedule deadlocks.
    """
    choose("sync", sync, SYNCS)
    placement = schedule.placement
    shared = any(len(placement.replicas(stage)) < len(placement.routes) for stage in range(placement.stages))
    if sync != "none" and shared:
        raise InputError(
            "depth",
            schedule.depth,
            "two replicas of a stage lie on one device; gradient sync needs an even depth",
            f"nearest: {schedule.depth - 1} or {schedule.depth + 1}",
        )
    codes = Codes.of(schedule)
    rows = [codes.encode(order) for order in schedule.orders]
    start, end = start_times(codes, rows, UNIT.steps(codes))
    places = [0] * codes.total
    for row in rows:
        for position, code in enumerate(row):
            places[code] = position
    channels = messages(codes, rows)
    receives = post_receives(rows, places, channels)
    slots, counts = assign_slots(codes, rows, places, receives)
    if sync == "none":
        order: tuple[int, ...] = ()
        points: list[list[Point]] = [[] for _ in rows]
    else:
        order = sync_order(codes, end, width, shared=tied and not needs_tie(placement, tied))
        points = sync_points(codes, rows, places, order, tied=tied, late=sync == "late")
    return Program(
        schedule=schedule,
        rows=assemble(schedule, codes, rows, start, receives, slots, points),
        slots=counts,
        sync=sync,
        sync_order=order,
        tied=tied,
    )


def messages(codes: Codes, rows: Rows) -> dict[tuple[int, int], list[Message]]:
    """Per ordered pair of devices, the transfers in the order in which the source produces them."""
    devices, length, last = codes.devices, codes.length, 2 * codes.stages - 1
    channels: dict[tuple[int, int], list[Message]] = {}
    for source, row in enumerate(rows):
        for code in row:
            if code % length < last:
                target = devices[code + 1]
                if target != source:
                    message = Message(code + 1, source, target)
                    if (source, target) in channels:
                        channels[source, target].append(message)
                    else:
                        channels[source, target] = [message]
    return channels


def post_receives(
    rows: Rows, places: list[int], channels: dict[tuple[int, int], list[Message]]
) -> list[list[tuple[int, Message]]]:
    """Per device, (position, message): post the receive before the compute action at ``position``.

    A receive must not come after the consumer of a later message of its channel; within that it is
    posted ``AHEAD`` actions before its own consumer.
    """
    receives: list[list[tuple[int, Message]]] = [[] for _ in rows]
    for (_, target), channel in channels.items():
        latest = len(rows[target])
        posts = []
        for message in reversed(channel):
            position = places[message[0]] - AHEAD
            if position < latest:
                latest = position if position > 0 else 0
            posts.append((latest, message))
        posts.reverse()
        receives[target] += posts
    for posts in receives:
        posts.sort(key=itemgetter(0))  # stable: keeps each channel's order
    return receives


def assign_slots(
    codes: Codes, rows: Rows, places: list[int], receives: list[list[tuple[int, Message]]]
) -> tuple[dict[int, int], tuple[int, ...]]:
    """A receive buffer for every message, by consumer, and how many each device needs.

    An activation is kept for the backward pass: its buffer is free after its B (or W). A gradient's
    is free after its B (or W).
    """
    length, stages = codes.length, codes.stages
    slots: dict[int, int] = {}
    counts = []
    for posts in receives:
        free: list[int] = []
        frees: dict[int, list[int]] = {}  # position of last use -> slots
        count = passed = 0
        for position, message in posts:
            for last in range(passed, position):
                free += frees.pop(last, ())
            passed = position
            if free:
                slot = free.pop()
            else:
                slot, count = count, count + 1
            slots[message.consumer] = slot
            last = places[last_use(message.consumer, length, stages)]
            frees.setdefault(last, []).append(slot)
        counts.append(count)
    return slots, tuple(counts)


def last_use(consumer: int, length: int, stages: int) -> int:
    """The code after which the buffer that ``consumer`` received into is free."""
    step = consumer % length
    stage = step if step < stages else 2 * stages - 1 - step
    return consumer - step + length - 1 - stage


def sync_order(codes: Codes, end: list[float], width: int, *, shared: bool = False) -> tuple[int, ...]:
    """Stages by the time at which the gradient of the last of their replicas is final.

    One order for all devices: their collectives can never wait for each other in a circle.

    Args:
        shared: first and last stage share their device's embedding, whose gradient stage 0 sums.
    """
    if width * len(codes.placement.routes) == 1:
        return ()
    length = codes.length
    ready = [0.0] * codes.stages
    for micro_batch in range(codes.micro_batches):
        for stage in range(codes.stages):
            code = micro_batch * length + length - 1 - stage
            if end[code] > ready[stage]:
                ready[stage] = end[code]
    if shared:
        ready[0] = max(ready[0], ready[-1])
    return tuple(sorted(range(codes.stages), key=lambda stage: (ready[stage], stage)))


def needs_tie(placement: Placement, tied: bool) -> bool:
    """Whether the tied embedding lies on two devices and needs an all-reduce of its own."""
    return tied and any(route[0] != route[-1] for route in placement.routes)


def sync_points(
    codes: Codes, rows: Rows, places: list[int], order: tuple[int, ...], *, tied: bool, late: bool
) -> list[list[Point]]:
    """Per device, where its all-reduces start, in ``order``; TIE comes after all of them.

    A stage's gradient is ready after the device's last backward of it, but an all-reduce waits for
    those before it in the order. Without TIE the all-reduce of stage 0 covers the embedding also for
    the last stage, which lies on the same device.
    """
    placement, length = codes.placement, codes.length
    last: dict[tuple[int, int], int] = {}
    for micro_batch, pipe in enumerate(codes.pipes):
        for stage in range(codes.stages):
            key = pipe, stage
            done = places[micro_batch * length + length - 1 - stage] + 1
            if done > last.get(key, 0):
                last[key] = done
    tie = needs_tie(placement, tied)
    if tied and not tie:
        for pipe in placement.pipes:
            first, head = (pipe, 0), (pipe, codes.stages - 1)
            last[first] = max(last.get(first, 0), last.get(head, 0))
    points: list[list[Point]] = []
    for device, row in enumerate(rows):
        held = placement.held[device]
        rank = {stage: place for place, stage in enumerate(order)}
        mine = sorted((rank[stage], pipe, stage) for pipe, stage in held if stage in rank)
        wanted = [(last.get((pipe, stage), 0), Action(Kind.SYNC, -1, stage, pipe)) for _, pipe, stage in mine]
        ends = [(pipe, stage) for pipe, stage in held if stage in (0, codes.stages - 1)]
        if tie and ends:
            ready = max(last.get(chunk, 0) for chunk in ends)
            wanted.append((ready, Action(Kind.TIE, -1, 0, ends[0][0])))
        position = len(row) if late else 0
        placed = []
        for ready, action in wanted:
            position = max(position, ready)
            placed.append(Point(position, action))
        points.append(placed)
    return points


_RECV = (Kind.RECV_F, Kind.RECV_B)
_WAIT = (Kind.WAIT_F, Kind.WAIT_B)
_SEND = (Kind.SEND_F, Kind.SEND_B)


def assemble(
    schedule: Schedule,
    codes: Codes,
    rows: Rows,
    start: list[float],
    receives: list[list[tuple[int, Message]]],
    slots: dict[int, int],
    points: list[list[Point]],
) -> tuple[tuple[Instruction, ...], ...]:
    """The rows. Around a compute action: receives, its WAIT, itself, its SEND, then all-reduces.

    Sequence numbers follow the starts of the compute actions, each with what surrounds it, and so
    respect every dependency: a producer starts before its consumer.
    """
    length, stages, pipes, names = codes.length, codes.stages, codes.pipes, codes.step_names
    devices, last = codes.devices, 2 * codes.stages - 1
    posts: dict[int, list[Message]] = {}  # code -> receives before it
    collectives: dict[int, list[Action]] = {}  # code -> all-reduces after it
    begin: list[list[Action]] = [[] for _ in rows]  # all-reduces of stages that got no micro-batch
    for device, row in enumerate(rows):
        for position, message in receives[device]:
            posts.setdefault(row[position], []).append(message)
        for position, action in points[device]:
            if position:
                collectives.setdefault(row[position - 1], []).append(action)
            else:
                begin[device].append(action)
    crossing = [
        [step < last and table[step + 1] != table[step] for step in range(length)]
        for table in codes.step_devices
    ]
    first = [0] * codes.total  # code -> sequence number of the first instruction around it
    sequence = sum(map(len, begin))
    for code in sorted((code for row in rows for code in row), key=start.__getitem__):
        first[code] = sequence
        micro_batch, step = divmod(code, length)
        sequence += 1 + crossing[pipes[micro_batch]][step] + (code in slots)
        if code in posts:
            sequence += len(posts[code])
        if code in collectives:
            sequence += len(collectives[code])
    early = 0
    new = tuple.__new__
    done = []
    for device, row in enumerate(rows):
        out: list[Instruction] = []
        emit = out.append
        for action in begin[device]:
            emit(Instruction(action, sequence=early))
            early += 1
        for code, compute in zip(row, schedule.orders[device], strict=True):
            number = first[code]
            micro_batch, step = divmod(code, length)
            pipe = pipes[micro_batch]
            if code in posts:
                for consumer, source, _ in posts[code]:
                    other, at = divmod(consumer, length)
                    action = new(Action, (_RECV[at >= stages], other, names[at][1], pipes[other]))
                    emit(new(Instruction, (action, source, slots[consumer], number)))
                    number += 1
            slot = -1
            if code in slots:
                slot = slots[code]
                action = new(Action, (_WAIT[step >= stages], micro_batch, names[step][1], pipe))
                emit(new(Instruction, (action, devices[code - 1], slot, number)))
                number += 1
            emit(new(Instruction, (compute, -1, slot, number)))
            number += 1
            if crossing[pipe][step]:
                action = new(Action, (_SEND[step + 1 >= stages], micro_batch, names[step + 1][1], pipe))
                emit(new(Instruction, (action, devices[code + 1], -1, number)))
                number += 1
            if code in collectives:
                for action in collectives[code]:
                    emit(Instruction(action, sequence=number))
                    number += 1
        emit(Instruction(Action(Kind.STEP), sequence=sequence + device))
        done.append(tuple(out))
    return tuple(done)
