"""When each action of a schedule happens, given what actions cost."""

from __future__ import annotations

from collections.abc import Sequence

from bitpipe.origin import Origin
from bitpipe.schedule.action import Kind
from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.costs import UNIT, Costs
from bitpipe.schedule.errors import stuck
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.timeline import Event, Timeline


def start_times(
    codes: Codes, rows: Rows, steps: Sequence[float], transfer: float = 0
) -> tuple[list[float], list[float]]:
    """Earliest start and end of every code when each device works through its row in order.

    Args:
        steps: duration of each step; ``transfer``: delay between devices; any one unit.

    Raises:
        ProgramError: the rows deadlock.
    """
    length, stages = codes.length, codes.stages
    devices = codes.devices
    start = [0.0] * codes.total
    end: list[float] = [-1.0] * codes.total
    waiting: dict[int, int] = {}
    position = [0] * len(rows)
    clock = [0.0] * len(rows)
    runnable = list(range(len(rows)))
    while runnable:
        device = runnable.pop()
        row, index, now = rows[device], position[device], clock[device]
        while index < len(row):
            code = row[index]
            step = code % length
            if step:
                before = code - stages if step >= 2 * stages else code - 1
                ready = end[before]
                if ready < 0:
                    waiting[before] = device
                    break
                if transfer and devices[before] != device:
                    ready += transfer
                if ready > now:
                    now = ready
            start[code] = now
            now += steps[step]
            end[code] = now
            index += 1
            if code in waiting:
                runnable.append(waiting.pop(code))
        position[device], clock[device] = index, now
    if any(index < len(row) for index, row in zip(position, rows, strict=True)):
        raise stuck(
            [codes.actions(row) for row in rows],
            position,
            "deadlock: every device waits for an action that comes later elsewhere",
        )
    return start, end


def evaluate(schedule: Schedule, costs: Costs = UNIT) -> Timeline:
    """The timeline of a schedule's compute actions, in units of one stage forward.

    Raises:
        InputError: ``costs`` do not fit the stages.
        ProgramError: the schedule deadlocks.
    """
    codes = Codes.of(schedule)
    rows = [codes.encode(order) for order in schedule.orders]
    chunks = schedule.chunks
    start, end = start_times(codes, rows, costs.steps(codes), costs.transfer * chunks)
    events = tuple(
        Event(device, action, start[code] / chunks, end[code] / chunks)
        for device, (order, row) in enumerate(zip(schedule.orders, rows, strict=True))
        for action, code in zip(order, row, strict=True)
    )
    return Timeline(devices=schedule.depth, events=events, unit="stage forward", origin=Origin.SIMULATED)


def held_chunks(schedule: Schedule) -> tuple[int, ...]:
    """Most chunks of activations that each device holds at once.

    A chunk is held from its F to its B; with a split backward to its W.
    """
    last = Kind.W if schedule.split_backward else Kind.B
    peaks = []
    for order in schedule.orders:
        held = peak = 0
        for action in order:
            kind = action.kind
            if kind is Kind.F:
                held += 1
                if held > peak:
                    peak = held
            elif kind is last:
                held -= 1
        peaks.append(peak)
    return tuple(peaks)


def peak_activations(schedule: Schedule) -> tuple[float, ...]:
    """Peak activations of each device in Ma: one micro-batch's on 1/D of the model (Table 3)."""
    return tuple(held / schedule.chunks for held in held_chunks(schedule))
