"""A block of four slots per device, repeated for every micro-batch: V-Half and V-Min.

Qi et al., *Pipeline Parallelism with Controllable Memory*, NeurIPS 2024. Where a device's two forwards and
two input gradients of one micro-batch lie decides how long an activation lives, so the block decides the
peak. The rest is compaction: weight gradients take free slots, start-up and drain move forward into free
slots as long as the device's peak does not rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bitpipe.schedule.codes import Codes, Rows

PERIOD = 6  # slots of one micro-batch on a device: two F, two I, two W

Block = Callable[[int], tuple[int, int, int, int]]
"""Slots of F, F on the way back, I there, I of a device, for micro-batch 0."""


class _Op(NamedTuple):
    """What lies in a slot: ``step`` is 0 for F, 1 for I, 2 for W."""

    step: int
    micro_batch: int
    stage: int


_F, _I, _W = range(3)
_Slots = dict[int, _Op]


def block_rule(codes: Codes, block: Block) -> Rows:
    """Rows of a two-chunk V placement whose peak is the block's, with weights filled in."""
    tables = [_filled(table) for table in _repeated(codes, block)]
    tables = _compacted(codes, tables, [_peak(table) for table in tables])
    tables = [_without_weights(table) for table in _as_early_as_possible(codes, tables)]
    tables = _compacted(codes, tables, [_peak(_filled(table)) for table in tables], drain_only=True)
    code = codes.forward, codes.backward, codes.weight
    rows = [[op for _, op in sorted(_filled(table).items())] for table in tables]
    return [[code[op.step](op.micro_batch, op.stage) for op in row] for row in rows]


def _repeated(codes: Codes, block: Block) -> list[_Slots]:
    tables: list[_Slots] = []
    for device in range(codes.placement.depth):
        there, back = device, codes.stages - 1 - device
        places = zip(block(device), ((_F, there), (_F, back), (_I, back), (_I, there)), strict=True)
        table: _Slots = {}
        for slot, (step, stage) in places:
            for m in range(codes.micro_batches):
                assert slot + PERIOD * m not in table
                table[slot + PERIOD * m] = _Op(step, m, stage)
        tables.append(table)
    return tables


def _filled(table: _Slots) -> _Slots:
    """With a W for every I, in the first free slot after it, oldest first."""
    out, slot, last = dict(table), 0, max(table)
    due: list[_Op] = []
    while slot <= last or due:
        if slot in table:
            if table[slot].step == _I:
                due.append(table[slot])
        elif due:
            out[slot] = due.pop(0)._replace(step=_W)
        slot += 1
    return out


def _without_weights(table: _Slots) -> _Slots:
    return {slot: op for slot, op in table.items() if op.step != _W}


def _peak(table: _Slots) -> int:
    """Most chunks held, from F to W."""
    held = most = 0
    for _, op in sorted(table.items()):
        held += (op.step == _F) - (op.step == _W)
        most = max(most, held)
    return most


def _compacted(
    codes: Codes, tables: Sequence[_Slots], caps: Sequence[int], *, drain_only: bool = False
) -> list[_Slots]:
    """Start-up (before the first last I of device 0) and drain (after its last F) moved forward.

    Each goes to the first free slot after what it waits for in which the device keeps its cap. With
    ``drain_only`` the tables hold no W, and caps count with them filled in.
    """
    out = [dict(table) for table in tables]
    where = {op: slot for table in out for slot, op in table.items()}
    half, count = codes.stages // 2, codes.micro_batches

    def kind(op: _Op) -> int:
        """Order within a slot: F there, F back, I back, I there, W."""
        return 4 if op.step == _W else 2 * op.step + ((op.stage >= half) != (op.step == _I))

    starting, draining = True, False
    everything = sorted(
        (slot, device, kind(op), op) for device, table in enumerate(out) for slot, op in table.items()
    )
    for slot, device, order, op in everything:
        if starting and order == 3 and device == 0:
            starting = False
        if not (starting or draining):
            draining = order == 0 and op.micro_batch == count - 1
            continue
        if starting and drain_only:
            continue
        table = out[device]
        del table[slot]
        first = _ready(codes, where, op) + 1
        for free in range(first, slot + 1):
            if free not in table:
                table[free] = op
                if free == slot or _peak(_filled(table) if drain_only else table) <= caps[device]:
                    where[op] = free
                    break
                del table[free]
    return out


def _ready(codes: Codes, where: dict[_Op, int], op: _Op) -> int:
    """The last slot of what an action waits for, its predecessor of the same kind included; -1: nothing."""
    step, m, stage = op
    needs = []
    if step == _F and stage:
        needs.append(_Op(_F, m, stage - 1))
    if step == _I:
        needs.append(_Op(_F, m, stage))
        if stage + 1 < codes.stages:
            needs.append(_Op(_I, m, stage + 1))
    if step == _W:
        needs.append(_Op(_I, m, stage))
    elif m:
        needs.append(_Op(step, m - 1, stage))
    return max((where[need] for need in needs), default=-1)


def _as_early_as_possible(codes: Codes, tables: Sequence[_Slots]) -> list[_Slots]:
    """The same orders, every action one slot long and in its earliest slot."""
    rows = [[op for _, op in sorted(table.items())] for table in tables]
    where: dict[_Op, int] = {}
    free, at = [0] * len(rows), [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for device, row in enumerate(rows):
            while at[device] < len(row):
                op = row[at[device]]
                try:
                    slot = max(free[device], _ready(codes, where, op) + 1)
                except KeyError:  # what it waits for has no slot yet
                    break
                where[op] = slot
                free[device], at[device], moved = slot + 1, at[device] + 1, True
    return [{where[op]: op for op in row} for row in rows]
