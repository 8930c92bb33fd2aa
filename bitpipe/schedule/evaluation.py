"""When each action of a schedule happens, given what actions cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from bitpipe.origin import Origin
from bitpipe.schedule.costs import UNIT, Costs
from bitpipe.schedule.effects import EFFECTS, keeps
from bitpipe.schedule.errors import stuck
from bitpipe.schedule.flow import Flow, recomputed_chunks
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.timeline import Event, Timeline


def start_times(
    rows: Sequence[Sequence[int]],
    needs: Sequence[Sequence[int]],
    ticks: Sequence[float],
    devices: Sequence[int],
    transfer: float = 0,
) -> tuple[list[float], list[float]]:
    """Earliest start and end of every node when each device works through its row in order.

    Args:
        rows: per device, its nodes.
        needs: per node, the nodes that must have ended before; ``transfer`` earlier where they lie
            on another device.
        ticks: duration of each node; any one unit.
        devices: of each node.

    Raises:
        Deadlock: the rows wait for each other in a circle.
    """
    start = [0.0] * len(ticks)
    end: list[float] = [-1.0] * len(ticks)
    waiting: dict[int, list[int]] = {}
    position = [0] * len(rows)
    clock = [0.0] * len(rows)
    runnable = list(range(len(rows)))
    while runnable:
        device = runnable.pop()
        row, index, now = rows[device], position[device], clock[device]
        while index < len(row):
            node = row[index]
            missing = -1
            for before in needs[node]:
                ready = end[before]
                if ready < 0:
                    missing = before
                    break
                if transfer and devices[before] != device:
                    ready += transfer
                if ready > now:
                    now = ready
            if missing >= 0:
                waiting.setdefault(missing, []).append(device)
                break
            start[node] = now
            now += ticks[node]
            end[node] = now
            index += 1
            if node in waiting:
                runnable += waiting.pop(node)
        position[device], clock[device] = index, now
    if any(index < len(row) for index, row in zip(position, rows, strict=True)):
        raise Deadlock(position)
    return start, end


class Deadlock(Exception):
    """Rows that wait for each other; ``positions`` says how far each came."""

    def __init__(self, positions: list[int]) -> None:
        super().__init__("deadlock")
        self.positions = positions


def flow_times(flow: Flow, costs: Costs = UNIT) -> tuple[list[float], list[float]]:
    """Start and end of every node of a schedule, in ticks of 1/v unit.

    Raises:
        InputError: ``costs`` do not fit the stages.
        ProgramError: the schedule deadlocks.
    """
    schedule = flow.schedule
    table = {kind: costs.ticks(kind, schedule.placement) for kind in {action.kind for action in flow.actions}}
    ticks = [table[kind][stage] for kind, _, stage, _ in flow.actions]
    try:
        return start_times(flow.rows, flow.needs, ticks, flow.devices, costs.transfer * schedule.chunks)
    except Deadlock as deadlock:
        reason = "deadlock: every device waits for an action that comes later elsewhere"
        raise stuck(schedule.orders, deadlock.positions, reason) from None


def evaluate(schedule: Schedule, costs: Costs = UNIT) -> Timeline:
    """The timeline of a schedule's compute actions, in units of one stage forward.

    Raises:
        InputError: ``costs`` do not fit the stages.
        ProgramError: the schedule deadlocks.
    """
    flow, chunks = Flow(schedule), schedule.chunks
    times = zip(flow.devices, flow.actions, *flow_times(flow, costs), strict=True)
    events = tuple(
        Event(device, action, begin / chunks, end / chunks) for device, action, begin, end in times
    )
    return Timeline(devices=schedule.depth, events=events, unit="stage forward", origin=Origin.SIMULATED)


def held_chunks(schedule: Schedule) -> tuple[int, ...]:
    """Most chunks of activations that each device holds at once (:func:`effects.keeps`)."""
    return tuple(max(accumulate(changes), default=0) for changes in held_changes(schedule))


def held_changes(schedule: Schedule) -> Iterator[list[int]]:
    """Per device, by how many chunks of activations each of its actions changes what it holds."""
    change = {kind: keeps(kind) for kind in EFFECTS}
    recomputed = recomputed_chunks(schedule)
    for order in schedule.orders:
        yield [
            keeps(kind, recomputed=True)
            if recomputed and (micro_batch, stage) in recomputed
            else change[kind]
            for kind, micro_batch, stage, _ in order
        ]


def peak_activations(schedule: Schedule) -> tuple[float, ...]:
    """Peak activations of each device in Ma: one micro-batch's on 1/D of the model (Table 3)."""
    return tuple(held / schedule.chunks for held in held_chunks(schedule))
