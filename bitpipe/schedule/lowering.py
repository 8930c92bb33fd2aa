"""Lowering: from the compute order to what every device does, by small passes.

1. :func:`messages`: which items cross devices, per ordered pair of devices in the sender's order;
2. :func:`post_receives`: where each receive is posted: in the sender's order, a few actions before
   it is needed;
3. :func:`assign_slots`: receive buffers, reused after their consumer's last use;
4. :func:`sync_points`: where gradient all-reduces start, in one order on all devices;
5. :func:`assemble`: the rows, numbered in one total order.

Why it cannot deadlock: every ordered pair of devices is a channel that delivers in order, and both
ends use the same order, the sender's. A receive is posted before the device waits for it or for a
later one of the same channel. So a WAIT can only wait for its SEND, which directly follows the
compute action that produces the data, and those are ordered by the times at which the schedule
executes, which :func:`~bitpipe.schedule.evaluation.flow_times` shows to exist.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from bitpipe.errors import InputError, choose
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.collector import paused
from bitpipe.schedule.effects import FINISHES, RECEIVING, SENDING, WAITING
from bitpipe.schedule.evaluation import flow_times
from bitpipe.schedule.flow import Flow
from bitpipe.schedule.placement import Placement
from bitpipe.schedule.program import Instruction, Program
from bitpipe.schedule.schedule import Schedule

AHEAD = 3
"""How many compute actions before its consumer a receive is posted, where its sender's order lets it."""
SYNCS = ("eager", "late", "none")


class Message(NamedTuple):
    """One transfer.

    Attributes:
        item: its number; ``what`` it is, of which micro-batch, stage and pipe.
        maker, reader: the nodes that make and first read it.
        source, target: their devices.
    """

    item: int
    what: int
    micro_batch: int
    stage: int
    pipe: int
    maker: int
    reader: int
    source: int
    target: int


class Receive(NamedTuple):
    """Post the receive of ``message`` before the node ``before``."""

    before: int
    message: Message


class Point(NamedTuple):
    """Where a collective starts: after ``position`` compute actions of its device."""

    position: int
    action: Action


@paused()
def lower(
    schedule: Schedule, *, sync: str, width: int = 1, tied: bool = False, sharded: bool = False
) -> Program:
    """Add communication, gradient sync and the optimizer step to a schedule.

    Args:
        sync: ``eager`` starts a stage's all-reduce right after its last backward (section 1.4.1),
            ``late`` after all compute of the device, ``none`` leaves it out.
        width: W; a stage held by one rank only (W = 1, one pipe) needs no all-reduce.
        tied: the first and last stage share the embedding.
        sharded: every replica of a stage steps its share of the weights only: a reduce-scatter in place
            of the all-reduce, and an all-gather after the step (ZeRO-1).

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
    flow = Flow(schedule)
    start, end = flow_times(flow)
    channels = messages(flow)
    receives = post_receives(flow, channels)
    slots, counts = assign_slots(flow, receives)
    if sync == "none":
        order: tuple[int, ...] = ()
        points: list[list[Point]] = [[] for _ in flow.rows]
    else:
        order = sync_order(flow, end, width, shared=tied and not needs_tie(placement, tied))
        points = sync_points(flow, order, tied=tied, late=sync == "late", sharded=sharded)
    return Program(
        schedule=schedule,
        rows=assemble(flow, start, receives, slots, points),
        slots=counts,
        sync_order=order,
        tied=tied,
    )


def messages(flow: Flow) -> dict[tuple[int, int], list[Message]]:
    """Per ordered pair of devices, the transfers in the order in which the source produces them."""
    devices, pipes, new = flow.devices, flow.schedule.pipes, tuple.__new__
    block, width = flow.items.block, flow.items.width
    channels: dict[tuple[int, int], list[Message]] = {}
    for maker, item in flow.crossing:
        reader = flow.reader[item]
        source, target = channel = devices[maker], devices[reader]
        micro_batch, place = divmod(item % block, width)
        of = micro_batch, place - 1, pipes[micro_batch]
        message = new(Message, (item, item // block, *of, maker, reader, source, target))
        channels.setdefault(channel, []).append(message)
    return channels


def post_receives(flow: Flow, channels: dict[tuple[int, int], list[Message]]) -> list[list[Receive]]:
    """Per device, its receives in the order of their posts.

    A receive must not come after the reader of a later message of its channel; within that it is
    posted ``AHEAD`` actions before its own reader.
    """
    receives: list[list[Receive]] = [[] for _ in flow.rows]
    new = tuple.__new__
    for (_, target), channel in channels.items():
        first, latest = flow.rows[target].start, flow.rows[target].stop
        posts = []
        for message in reversed(channel):
            ahead = message.reader - AHEAD
            if ahead < latest:
                latest = ahead if ahead > first else first
            posts.append(new(Receive, (latest, message)))
        posts.reverse()
        receives[target] += posts
    for posts in receives:
        posts.sort(key=attrgetter("before"))  # stable: keeps each channel's order
    return receives


def assign_slots(flow: Flow, receives: list[list[Receive]]) -> tuple[dict[int, int], tuple[int, ...]]:
    """A receive buffer for every item that arrives, and how many each device needs.

    A buffer is free after the action that frees its item: an activation is kept for the backward.
    """
    slots: dict[int, int] = {}
    counts = []
    for row, posts in zip(flow.rows, receives, strict=True):
        free: list[int] = []
        frees: dict[int, list[int]] = {}  # node of last use -> slots
        count, passed = 0, row.start
        for before, message in posts:
            for last in range(passed, before):
                free += frees.pop(last, ())
            passed = before
            if free:
                slot = free.pop()
            else:
                slot, count = count, count + 1
            slots[message.item] = slot
            frees.setdefault(flow.freer[message.item], []).append(slot)
        counts.append(count)
    return slots, tuple(counts)


def sync_order(flow: Flow, end: list[float], width: int, *, shared: bool = False) -> tuple[int, ...]:
    """Stages by the time at which the gradient of the last of their replicas is final.

    One order for all devices: their collectives can never wait for each other in a circle.

    Args:
        shared: first and last stage share their device's embedding, whose gradient stage 0 sums.
    """
    placement = flow.schedule.placement
    if width * len(placement.routes) == 1:
        return ()
    ready = [0.0] * placement.stages
    for (kind, _, stage, _), done in zip(flow.actions, end, strict=True):
        if kind in FINISHES and done > ready[stage]:
            ready[stage] = done
    if shared:
        ready[0] = max(ready[0], ready[-1])
    return tuple(sorted(range(placement.stages), key=lambda stage: (ready[stage], stage)))


def needs_tie(placement: Placement, tied: bool) -> bool:
    """Whether the tied embedding lies on two devices and needs an all-reduce of its own."""
    return tied and any(route[0] != route[-1] for route in placement.routes)


def sync_points(
    flow: Flow, order: tuple[int, ...], *, tied: bool, late: bool, sharded: bool = False
) -> list[list[Point]]:
    """Per device, where its all-reduces start, in ``order``; TIE comes after all of them.

    A stage's gradient is ready after the device's last backward of it, but an all-reduce waits for
    those before it in the order. Without TIE the all-reduce of stage 0 covers the embedding also for
    the last stage, which lies on the same device.
    """
    placement = flow.schedule.placement
    final = placement.stages - 1
    last: dict[tuple[int, int], int] = {}
    for row in flow.rows:
        for position, node in enumerate(row, 1):
            kind, _, stage, pipe = flow.actions[node]
            if kind in FINISHES:
                last[pipe, stage] = position
    tie = needs_tie(placement, tied)
    if tied and not tie:
        for pipe in placement.pipes:
            last[pipe, 0] = max(last.get((pipe, 0), 0), last.get((pipe, final), 0))
    rank = {stage: place for place, stage in enumerate(order)}
    points: list[list[Point]] = []
    for row, held in zip(flow.rows, placement.held, strict=True):
        mine = sorted((rank[stage], pipe, stage) for pipe, stage in held if stage in rank)
        kind = Kind.SCATTER if sharded else Kind.SYNC
        wanted = [(last.get((pipe, stage), 0), Action(kind, -1, stage, pipe)) for _, pipe, stage in mine]
        ends = [(pipe, stage) for pipe, stage in held if stage in (0, final)]
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


def assemble(
    flow: Flow,
    start: list[float],
    receives: list[list[Receive]],
    slots: dict[int, int],
    points: list[list[Point]],
) -> tuple[tuple[Instruction, ...], ...]:
    """The rows. Around a compute action: receives, its WAITs, itself, its SENDs, then all-reduces.

    Sequence numbers follow the starts of the compute actions, each with what surrounds it, and so
    respect every dependency: a producer starts before its consumer.
    """
    new = tuple.__new__
    posts: dict[int, list[Message]] = {}  # node -> receives before it
    waits: dict[int, list[Message]] = {}
    sends: dict[int, list[Message]] = {}
    collectives: dict[int, list[Action]] = {}  # node -> all-reduces after it
    begin: list[list[Action]] = [[] for _ in flow.rows]  # all-reduces of stages that got no micro-batch
    around = [1] * len(start)  # node -> instructions, itself counted
    for device, row in enumerate(flow.rows):
        for before, message in receives[device]:
            for those, node in ((posts, before), (waits, message.reader), (sends, message.maker)):
                around[node] += 1
                if node in those:
                    those[node].append(message)
                else:
                    those[node] = [message]
        for position, action in points[device]:
            if position:
                collectives.setdefault(row[position - 1], []).append(action)
                around[row[position - 1]] += 1
            else:
                begin[device].append(action)
    first = [0] * len(start)  # node -> sequence number of the first instruction around it
    sequence = sum(map(len, begin))
    for node in sorted(range(len(start)), key=start.__getitem__):
        first[node] = sequence
        sequence += around[node]
    early = 0
    done = []
    for device, row in enumerate(flow.rows):
        out: list[Instruction] = []
        emit = out.append
        for action in begin[device]:
            emit(Instruction(action, sequence=early))
            early += 1
        for node in row:
            number = first[node]
            if node in posts:
                for item, what, micro_batch, stage, pipe, _, _, source, _ in posts[node]:
                    action = new(Action, (RECEIVING[what], micro_batch, stage, pipe))
                    emit(new(Instruction, (action, source, slots[item], number)))
                    number += 1
            slot = -1
            if node in waits:
                for item, what, micro_batch, stage, pipe, _, _, source, _ in waits[node]:
                    slot = slots[item]
                    action = new(Action, (WAITING[what], micro_batch, stage, pipe))
                    emit(new(Instruction, (action, source, slot, number)))
                    number += 1
            emit(new(Instruction, (flow.actions[node], -1, slot, number)))
            number += 1
            if node in sends:
                for _, what, micro_batch, stage, pipe, _, _, _, target in sends[node]:
                    action = new(Action, (SENDING[what], micro_batch, stage, pipe))
                    emit(new(Instruction, (action, target, -1, number)))
                    number += 1
            if node in collectives:
                for action in collectives[node]:
                    emit(Instruction(action, sequence=number))
                    number += 1
        emit(Instruction(Action(Kind.STEP), sequence=sequence + device))
        after = sequence + len(flow.rows) * (device + 1)
        scattered = (action for _, action in points[device] if action.kind is Kind.SCATTER)
        for number, action in enumerate(scattered, after):
            emit(Instruction(action._replace(kind=Kind.GATHER), sequence=number))
        done.append(tuple(out))
    return tuple(done)
