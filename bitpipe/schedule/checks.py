"""Static checks of a program: all that must hold before anything starts.

Each check raises :class:`ProgramError` with the surroundings of the failing step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from bitpipe.schedule.action import COMPUTE, Action, Kind
from bitpipe.schedule.errors import ProgramError, at, stuck
from bitpipe.schedule.program import Program
from bitpipe.schedule.schedule import Schedule, pipe_of


def check(program: Program) -> None:
    """Check a program: complete, feasible, deadlock-free, buffers and cap respected.

    Raises:
        ProgramError: the first violation, with the grid around it.
    """
    check_schedule(program.schedule)
    compute_matches(program)
    buffers(program)
    executes(program)
    collectives(program)


def check_schedule(schedule: Schedule) -> None:
    """Every action is there once, on the device that holds its stage, and the cap is kept.

    Raises:
        ProgramError: the first violation, with the grid around it.
    """
    complete(schedule)
    activations(schedule)


def complete(schedule: Schedule) -> None:
    """Each micro-batch passes each stage of its pipe once per kind, on the stage's device."""
    placement, count = schedule.placement, schedule.micro_batches
    kinds = (Kind.F, Kind.I, Kind.W) if schedule.split_backward else (Kind.F, Kind.B)
    table = placement.table
    pipes = [pipe_of(m, count, placement.bidirectional) for m in range(count)]
    stages = placement.stages
    seen: dict[Kind, bytearray] = {kind: bytearray(count * stages) for kind in kinds}
    for device, row in enumerate(schedule.orders):
        for position, action in enumerate(row):
            kind, micro_batch, stage, pipe = action
            if kind not in seen:
                raise at(schedule.orders, device, position, f"{action} is not one of {', '.join(kinds)}")
            if not (0 <= micro_batch < count and 0 <= stage < stages):
                raise at(
                    schedule.orders,
                    device,
                    position,
                    f"{action} lies outside {count} micro-batches and {stages} stages",
                )
            if pipe != pipes[micro_batch]:
                raise at(
                    schedule.orders, device, position, f"{action}: the micro-batch belongs to the other pipe"
                )
            if table[pipe][stage] != device:
                raise at(
                    schedule.orders,
                    device,
                    position,
                    f"{action}: the stage lies on device {table[pipe][stage]}",
                )
            index = micro_batch * stages + stage
            if seen[kind][index]:
                raise at(schedule.orders, device, position, f"{action} comes twice")
            seen[kind][index] = 1
    for kind in kinds:
        index = seen[kind].find(0)
        if index >= 0:
            micro_batch, stage = divmod(index, stages)
            missing = Action(kind, micro_batch, stage, pipes[micro_batch])
            raise ProgramError(f"{missing} is missing on device {table[missing.pipe][stage]}")


def activations(schedule: Schedule) -> None:
    """No device ever holds more chunks of activations than the cap."""
    if schedule.cap is None:
        return
    last = Kind.W if schedule.split_backward else Kind.B
    for device, row in enumerate(schedule.orders):
        held = 0
        for position, action in enumerate(row):
            if action.kind is Kind.F:
                held += 1
                if held > schedule.cap:
                    raise at(
                        schedule.orders,
                        device,
                        position,
                        f"{action} makes it {held} chunks of activations, the cap is {schedule.cap}",
                    )
            elif action.kind is last:
                held -= 1


def compute_matches(program: Program) -> None:
    """The program's compute actions are the schedule's, in its order."""
    for device, (row, order) in enumerate(zip(program.rows, program.schedule.orders, strict=True)):
        compute = [instruction.action for instruction in row if instruction.action.kind in COMPUTE]
        if compute != list(order):
            position = next(
                (i for i, (a, b) in enumerate(zip(compute, order, strict=False)) if a != b),
                min(len(compute), len(order)),
            )
            raise at(_actions(program), device, position, "compute differs from the schedule's order")


def buffers(program: Program) -> None:
    """Receive buffers: in range, never reused before their consumer's last use.

    The last use of an activation and of an output gradient is the chunk's B, or its W.
    """
    split = program.schedule.split_backward
    last = Kind.W if split else Kind.B
    stages = program.schedule.placement.stages
    for device, row in enumerate(program.rows):
        content: dict[int, int] = {}  # slot -> key of the chunk that uses it, F and B apart
        uses: dict[int, list[int]] = {}  # chunk -> slots that its last action frees
        for position, (action, _, slot, _) in enumerate(row):
            kind = action.kind
            if kind is Kind.RECV_F or kind is Kind.RECV_B:
                if not 0 <= slot < program.slots[device]:
                    _fail(
                        program,
                        device,
                        position,
                        f"{action} uses slot {slot}, there are {program.slots[device]}",
                    )
                if slot in content:
                    _fail(program, device, position, f"{action} reuses slot {slot}, which is still in use")
                chunk = action.micro_batch * stages + action.stage
                content[slot] = 2 * chunk + (kind is Kind.RECV_B)
                uses.setdefault(chunk, []).append(slot)
            elif slot >= 0:
                back = kind is Kind.WAIT_B or kind is Kind.B or kind is Kind.I
                if content.get(slot) != 2 * (action.micro_batch * stages + action.stage) + back:
                    _fail(program, device, position, f"{action} needs slot {slot} to hold its input")
            if kind is last:
                for freed in uses.pop(action.micro_batch * stages + action.stage, ()):
                    del content[freed]


def executes(program: Program) -> None:
    """Run the program on channels that deliver in order and only once both ends are posted.

    Channels are ordered pairs of devices without tags, as NCCL's are. It shows that both ends agree
    on the order, that nothing waits forever, and that every input is there when it is used.
    """
    schedule = program.schedule
    stages, split = schedule.placement.stages, schedule.split_backward
    table, depth = schedule.placement.table, schedule.depth
    count = schedule.micro_batches * stages
    have_f, have_b, arrived_f, arrived_b = (bytearray(count) for _ in range(4))
    sent: dict[int, list[Action]] = {}
    posted: dict[int, int] = {}  # channel -> receives so far
    expected: dict[tuple[int, int], tuple[int, int]] = {}  # (device, slot) -> channel, index
    position = [0] * depth
    runnable = list(range(depth))
    asleep: dict[int, int] = {}  # channel -> device that waits for its next message
    while runnable:
        device = runnable.pop()
        row, index = program.rows[device], position[device]
        while index < len(row):
            action, peer, slot, _ = row[index]
            kind, micro_batch, stage, pipe = action
            chunk = micro_batch * stages + stage
            if kind is Kind.F:
                if stage and not (
                    have_f[chunk - 1] if table[pipe][stage - 1] == device else arrived_f[chunk]
                ):
                    _fail(program, device, index, f"{action} runs before its input is there")
                have_f[chunk] = 1
            elif kind is Kind.B or kind is Kind.I:
                if not have_f[chunk]:
                    _fail(program, device, index, f"{action} runs before its forward")
                if stage + 1 < stages and not (
                    have_b[chunk + 1] if table[pipe][stage + 1] == device else arrived_b[chunk]
                ):
                    _fail(program, device, index, f"{action} runs before its input is there")
                have_b[chunk] = 1
            elif kind is Kind.SEND_F or kind is Kind.SEND_B:
                made = have_f[chunk - 1] if kind is Kind.SEND_F else have_b[chunk + 1]
                if not made:
                    _fail(program, device, index, f"{action} runs before there is something to send")
                channel = device * depth + peer
                sent.setdefault(channel, []).append(action)
                if channel in asleep:
                    runnable.append(asleep.pop(channel))
            elif kind is Kind.RECV_F or kind is Kind.RECV_B:
                channel = peer * depth + device
                number = posted.get(channel, 0)
                posted[channel] = number + 1
                expected[device, slot] = channel, number
            elif kind is Kind.WAIT_F or kind is Kind.WAIT_B:
                if (device, slot) not in expected:
                    _fail(program, device, index, f"{action} waits, but no receive was posted")
                channel, number = expected[device, slot]
                messages = sent.get(channel, ())
                if len(messages) <= number:
                    asleep[channel] = device
                    break
                other = messages[number]
                back = kind is Kind.WAIT_B
                if other[1:] != action[1:] or (other.kind is Kind.SEND_B) != back:
                    _fail(program, device, index, f"{action} would receive what {other} sends")
                (arrived_b if back else arrived_f)[chunk] = 1
            elif kind is Kind.W and not (split and have_b[chunk]):
                _fail(program, device, index, f"{action} runs before its input gradient")
            index += 1
        position[device] = index
    if any(index < len(row) for index, row in zip(position, program.rows, strict=True)):
        raise stuck(_actions(program), position, "deadlock: every device waits for another")
    for channel, messages in sent.items():
        if posted.get(channel, 0) != len(messages):
            source, target = divmod(channel, depth)
            raise ProgramError(
                f"device {source} sends {len(messages)} messages to device {target}, "
                f"which receives {posted.get(channel, 0)}"
            )


def collectives(program: Program) -> None:
    """All-reduces: each after its gradient is final, in the common order; STEP last, once."""
    rank = {stage: place for place, stage in enumerate(program.sync_order)}
    last = Kind.W if program.schedule.split_backward else Kind.B
    for device, row in enumerate(program.rows):
        if not row or row[-1].action.kind is not Kind.STEP:
            raise ProgramError(f"device {device} does not end with STEP")
        done: dict[tuple[int, int], int] = {}
        previous = -1
        sequence = -1
        syncs: set[tuple[int, int]] = set()
        for position, instruction in enumerate(row):
            action = instruction.action
            if instruction.sequence <= sequence:
                _fail(program, device, position, f"{action} is out of sequence")
            sequence = instruction.sequence
            kind = action.kind
            if kind is last:
                done[action.pipe, action.stage] = position
            elif kind is Kind.SYNC:
                place = rank.get(action.stage, -1)
                if place < previous:
                    _fail(program, device, position, f"{action} breaks the common order of all-reduces")
                previous = place
                syncs.add((action.pipe, action.stage))
        held = program.schedule.placement.chunks_of(device)
        wanted = {chunk for chunk in held if chunk[1] in rank}
        if syncs != wanted:
            odd = sorted(syncs ^ wanted)[0]
            raise ProgramError(f"device {device}: SYNC of stage {odd[1]} is missing or not wanted")
        for position, instruction in enumerate(row):
            action = instruction.action
            if action.kind is Kind.SYNC and done.get((action.pipe, action.stage), -1) > position:
                _fail(program, device, position, f"{action} starts before its last backward")
            if action.kind is Kind.STEP and position != len(row) - 1:
                _fail(program, device, position, "STEP comes before the end")


def _actions(program: Program) -> list[list[Action]]:
    return [[instruction.action for instruction in row] for row in program.rows]


def _fail(program: Program, device: int, position: int, reason: str) -> NoReturn:
    rows: Sequence[Sequence[Action]] = _actions(program)
    raise at(rows, device, position, reason)
