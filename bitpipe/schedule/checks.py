"""Static checks of a program: all that must hold before anything starts.

Each check raises :class:`ProgramError` with the surroundings of the failing step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NoReturn

from bitpipe.schedule.action import COLLECTIVES, COMPUTE, Action, Kind
from bitpipe.schedule.collector import paused
from bitpipe.schedule.effects import (
    EFFECTS,
    FINISHES,
    FORGETFUL,
    MOVES,
    RECEIVES,
    SENDING,
    SENDS,
    WAITS,
    Item,
)
from bitpipe.schedule.errors import ProgramError, at, stuck
from bitpipe.schedule.evaluation import held_changes
from bitpipe.schedule.flow import Items, recomputed_chunks
from bitpipe.schedule.program import Program
from bitpipe.schedule.schedule import Schedule, pipe_rule

# Looking a member up in its enumeration is slow, and these loops see a million instructions.
_F, _B, _I, _W, _SYNC, _STEP = Kind.F, Kind.B, Kind.I, Kind.W, Kind.SYNC, Kind.STEP
_ENDING = FINISHES | COLLECTIVES | {_STEP}
_ANYWHERE = -2


@paused()
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
    if program.tied:
        embedding(program)


def check_schedule(schedule: Schedule) -> None:
    """Every action is there once, on the device that holds its stage, and the cap is kept.

    Raises:
        ProgramError: the first violation, with the grid around it.
    """
    complete(schedule)
    activations(schedule)


def complete(schedule: Schedule) -> None:
    """Each micro-batch passes each stage of its pipe once: F, then either B or I and W."""
    placement, count = schedule.placement, schedule.micro_batches
    routes, pipes, stages, orders = placement.routes, schedule.pipes, placement.stages, schedule.orders
    seen = {kind: bytearray(count * stages) for kind in COMPUTE}
    for device, row in enumerate(orders):
        for position, action in enumerate(row):
            kind, micro_batch, stage, pipe = action
            if kind not in seen:
                raise at(orders, device, position, f"{action} is not one of F, B, I, W, R")
            if not (0 <= micro_batch < count and 0 <= stage < stages):
                reason = f"{action} lies outside {count} micro-batches and {stages} stages"
                raise at(orders, device, position, reason)
            if pipe != pipes[micro_batch]:
                reason = f"{action} is in the wrong pipe: {pipe_rule(pipes)}"
                raise at(orders, device, position, reason)
            if routes[pipe][stage] != device:
                reason = f"{action}: the stage lies on device {routes[pipe][stage]}"
                raise at(orders, device, position, reason)
            index = micro_batch * stages + stage
            if seen[kind][index]:
                raise at(orders, device, position, f"{action} comes twice")
            seen[kind][index] = 1
            if kind is not _F and seen[_B][index] and (seen[_I][index] or seen[_W][index]):
                raise at(orders, device, position, f"{action}: a backward is either B, or I and W")
    whole = seen[_B]
    for kind in (_F, _I, _W) if whole.find(0) >= 0 else (_F,):
        index = -1
        while (index := seen[kind].find(0, index + 1)) >= 0:
            if kind is _F or not whole[index]:
                micro_batch, stage = divmod(index, stages)
                split = seen[_I][index] or seen[_W][index] or (schedule.split_backward and kind is not _F)
                missing = Action(kind if kind is _F or split else _B, micro_batch, stage, pipes[micro_batch])
                raise ProgramError(f"{missing} is missing on device {routes[missing.pipe][stage]}")


def activations(schedule: Schedule) -> None:
    """No device ever holds more chunks of activations than the cap."""
    if schedule.cap is None:
        return
    for device, changes in enumerate(held_changes(schedule)):
        for position, held in enumerate(accumulate(changes)):
            if held > schedule.cap:
                action = schedule.orders[device][position]
                reason = f"{action} makes it {held} chunks of activations, the cap is {schedule.cap}"
                raise at(schedule.orders, device, position, reason)


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
    """Receive buffers: in range, never reused before the action that frees their item."""
    items = Items(program.schedule)
    width = items.width
    arrives = {kind: item * items.block + 1 for kind, item in MOVES.items()}
    frees = {kind: items.offsets(effect.frees) for kind, effect in EFFECTS.items()}
    reads = {kind: items.offsets(effect.reads) for kind, effect in EFFECTS.items()}
    for device, row in enumerate(program.rows):
        count = program.slots[device]
        content = [-1] * count
        slots: dict[int, int] = {}  # item -> its slot
        for position, ((kind, micro_batch, stage, _), _, slot, _) in enumerate(row):
            place = micro_batch * width + stage
            if kind in RECEIVES:
                if not 0 <= slot < count or content[slot] >= 0:
                    wrong = "is still in use" if 0 <= slot < count else f"is one of {count}: out of range"
                    _fail(program, device, position, f"{row[position].action}: slot {slot} {wrong}")
                content[slot] = arrives[kind] + place
                slots[content[slot]] = slot
            elif slot >= 0:
                held = content[slot] - place if slot < count else -1
                if held != arrives[kind] if kind in MOVES else held not in reads[kind]:
                    reason = f"{row[position].action} needs slot {slot} to hold its input"
                    _fail(program, device, position, reason)
            if kind in frees:
                for offset in frees[kind]:
                    if offset + place in slots:
                        content[slots.pop(offset + place)] = -1


def executes(program: Program) -> None:
    """Run the program on channels that deliver in order and only once both ends are posted.

    Channels are ordered pairs of devices without tags, as NCCL's are. It shows that both ends agree
    on the order, that nothing waits forever, and that every item is on the device that uses it.
    """
    schedule = program.schedule
    items, depth, recomputed = Items(schedule), schedule.depth, recomputed_chunks(schedule)
    width = items.width
    number_of = {kind: item * items.block + 1 for kind, item in MOVES.items()}
    reads = {kind: items.offsets(effect.reads) for kind, effect in EFFECTS.items()}
    makes = {kind: items.offsets(effect.makes) for kind, effect in EFFECTS.items()}
    forgetful = items.offsets(FORGETFUL.makes)
    where = [-1] * items.count  # item -> the device that has it
    for micro_batch in range(schedule.micro_batches):
        where[items.number(Item.INPUT, micro_batch, 0)] = _ANYWHERE
        where[items.number(Item.GRAD, micro_batch, schedule.placement.stages - 1)] = _ANYWHERE
    sent: list[list[int]] = [[] for _ in range(depth * depth)]  # channel -> items
    posted = [0] * (depth * depth)  # channel -> receives so far
    expected = [[(-1, 0)] * count for count in program.slots]  # device, slot -> channel, index
    asleep: dict[int, int] = {}  # channel -> device that waits for its next message
    position = [0] * depth
    runnable = list(range(depth))
    while runnable:
        device = runnable.pop()
        row, buffers_ = program.rows[device], expected[device]
        for index in range(position[device], len(row)):
            action, peer, slot, _ = row[index]
            kind, micro_batch, stage, _ = action
            place = micro_batch * width + stage
            if kind in reads:
                for offset in reads[kind]:
                    found = where[offset + place]
                    if found != device and found != _ANYWHERE:
                        what = Item(items.of(offset + place)[0]).name
                        _fail(program, device, index, f"{action} runs before its {what} is there")
                forgets = recomputed and kind is _F and (micro_batch, stage) in recomputed
                for offset in forgetful if forgets else makes[kind]:
                    where[offset + place] = device
            elif kind in RECEIVES:
                channel = peer * depth + device
                buffers_[slot] = channel, posted[channel]
                posted[channel] += 1
            elif kind in WAITS:
                number = number_of[kind] + place
                channel, turn = buffers_[slot]
                if channel < 0:
                    _fail(program, device, index, f"{action} waits, but no receive was posted")
                messages = sent[channel]
                if len(messages) <= turn:
                    asleep[channel] = device
                    position[device] = index
                    break
                if messages[turn] != number:
                    item, other, its_stage = items.of(messages[turn])
                    sender = Action(SENDING[item], other, its_stage, schedule.pipes[other])
                    _fail(program, device, index, f"{action} would receive what {sender} sends")
                where[number] = device
            elif kind in SENDS:
                number = number_of[kind] + place
                if where[number] != device:
                    _fail(program, device, index, f"{action} runs before there is something to send")
                where[number] = -1
                channel = device * depth + peer
                sent[channel].append(number)
                if channel in asleep:
                    runnable.append(asleep.pop(channel))
        else:
            position[device] = len(row)
    if any(index < len(row) for index, row in zip(position, program.rows, strict=True)):
        raise stuck(_actions(program), position, "deadlock: every device waits for another")
    for channel, messages in enumerate(sent):
        if posted[channel] != len(messages):
            source, target = divmod(channel, depth)
            raise ProgramError(
                f"device {source} sends {len(messages)} messages to device {target}, "
                f"which receives {posted[channel]}"
            )


def collectives(program: Program) -> None:
    """Each after its gradient is final, in the common order; STEP last, before the gathers of its weights."""
    placement = program.schedule.placement
    rank = {stage: place for place, stage in enumerate(program.sync_order)}
    sharded = any(kind is Kind.SCATTER for kind, _ in program.groups)
    reduction = Kind.SCATTER if sharded else _SYNC
    for device, row in enumerate(program.rows):
        done: dict[tuple[int, int], int] = {}  # (pipe, stage) -> position of its last backward
        started: dict[Kind, dict[tuple[int, int], int]] = {reduction: {}, Kind.GATHER: {}}
        sequence, place, stepped = -1, {reduction: -1, Kind.GATHER: -1}, False
        for position, (action, _, _, number) in enumerate(row):
            kind, _, stage, pipe = action
            if number <= sequence:
                _fail(program, device, position, f"{action} is out of sequence")
            sequence = number
            if kind not in _ENDING and not stepped:
                continue
            if stepped and kind is not Kind.GATHER:
                last = row[position - 1].action if kind is _STEP else action
                _fail(program, device, position, f"STEP comes before the end: {last} follows")
            if kind in FINISHES:
                done[pipe, stage] = position
            elif kind in started:
                if kind is Kind.GATHER and not stepped:
                    _fail(program, device, position, f"{action} gathers weights that have not stepped")
                if rank.get(stage, -1) < place[kind]:
                    _fail(program, device, position, f"{action} breaks the common order of all-reduces")
                place[kind] = rank.get(stage, -1)
                started[kind][pipe, stage] = position
            elif kind is _SYNC or kind is Kind.SCATTER:
                _fail(program, device, position, f"{action}: gradients are summed in one way")
            elif kind is _STEP:
                stepped = True
        if not stepped:
            raise ProgramError(f"device {device} does not end with STEP")
        for chunk, position in started[reduction].items():
            if done.get(chunk, -1) > position:
                _fail(program, device, position, f"{row[position].action} starts before its last backward")
        wanted = {(pipe, stage) for pipe, stage in placement.held[device] if stage in rank}
        for kind in (reduction, Kind.GATHER) if sharded else (reduction,):
            if started[kind].keys() != wanted:
                pipe, stage = min(started[kind].keys() ^ wanted)
                missing = Action(kind, -1, stage, pipe)
                raise ProgramError(f"device {device}: {missing} is missing, or has no place there")


def embedding(program: Program) -> None:
    """A tied embedding is summed over replicas after its last use on the device, also by the head."""
    ends = (0, program.schedule.placement.stages - 1)
    for device, row in enumerate(program.rows):
        actions = [instruction.action for instruction in row]
        tie = device in program.groups.get((Kind.TIE, 0), ())
        for position, action in enumerate(actions):
            if action.kind is not (Kind.TIE if tie else _SYNC) or action.stage != 0:
                continue
            for later in actions[position:]:
                uses = later.kind in FINISHES and later.stage in ends
                if uses and (tie or later.pipe == action.pipe):
                    _fail(program, device, position, f"{action} starts before {later} has used the embedding")


def _actions(program: Program) -> list[list[Action]]:
    return [[instruction.action for instruction in row] for row in program.rows]


def _fail(program: Program, device: int, position: int, reason: str) -> NoReturn:
    rows: Sequence[Sequence[Action]] = _actions(program)
    raise at(rows, device, position, reason)
