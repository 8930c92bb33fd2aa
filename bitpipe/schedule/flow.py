"""Who makes what for whom in a schedule, read off :mod:`bitpipe.schedule.effects`.

Actions are numbered row by row: device 0's first, then device 1's. These numbers are the nodes that
evaluation and lowering work on; an item is a number, too, see :class:`Items`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.effects import EFFECTS, FORGETFUL, Item, Parts
from bitpipe.schedule.schedule import Schedule

_PER_MICRO_BATCH = (Item.INPUT, Item.GRAD, Item.STASH, Item.WSTASH)
"""Weights are there from the start, and their gradients are sums."""


class Items:
    """Numbers for the items of every micro-batch and stage."""

    def __init__(self, schedule: Schedule) -> None:
        self.width = schedule.placement.stages + 2  # INPUT of stage S and GRAD of stage -1 have a place
        self.block = schedule.micro_batches * self.width
        self.count = len(Item) * self.block

    def number(self, item: Item, micro_batch: int, stage: int) -> int:
        return item * self.block + micro_batch * self.width + stage + 1

    def of(self, number: int) -> tuple[int, int, int]:
        """Item, micro-batch and stage."""
        item, place = divmod(number, self.block)
        micro_batch, stage = divmod(place, self.width)
        return item, micro_batch, stage - 1

    def offsets(self, parts: Parts, which: Sequence[Item] = _PER_MICRO_BATCH) -> tuple[int, ...]:
        """What to add to ``micro_batch · width + stage`` for the numbers of an action's items."""
        return tuple(item * self.block + 1 + shift for item, shift in parts if item in which)


class Flow:
    """The nodes of a schedule and the items between them.

    Attributes:
        actions: per node.
        devices: per node.
        rows: per device, its nodes.
        needs: per node, the nodes that must have ended before, as far as its row's order does not
            already say so.
        maker, reader, freer: per item, the node that makes it, the first to read it and the one that
            frees it, or -1.
        crossing: (maker, item) of items whose first reader lies on another device, in the makers' order.
    """

    def __init__(self, schedule: Schedule) -> None:
        orders = schedule.orders
        self.schedule = schedule
        self.actions: list[Action] = [action for order in orders for action in order]
        ends = list(accumulate(map(len, orders), initial=0))
        self.rows = [range(begin, end) for begin, end in pairwise(ends)]
        self.devices = [device for device, order in enumerate(orders) for _ in order]
        self.items = items = Items(schedule)
        self.maker, self.reader, self.freer = ([-1] * items.count for _ in range(3))
        recomputed = recomputed_chunks(schedule)
        makes = {kind: items.offsets(effect.makes) for kind, effect in EFFECTS.items()}
        reads = {kind: items.offsets(effect.reads) for kind, effect in EFFECTS.items()}
        frees = {kind: items.offsets(effect.frees) for kind, effect in EFFECTS.items()}
        forgetful = items.offsets(FORGETFUL.makes)
        maker, reader, freer, width = self.maker, self.reader, self.freer, items.width
        for node, (kind, micro_batch, stage, _) in enumerate(self.actions):
            place = micro_batch * width + stage
            forgets = recomputed and kind is Kind.F and (micro_batch, stage) in recomputed
            for offset in forgetful if forgets else makes[kind]:
                maker[offset + place] = node
            for offset in reads[kind]:
                if reader[offset + place] < 0:
                    reader[offset + place] = node
            for offset in frees[kind]:
                freer[offset + place] = node
        self.needs, self.crossing = self._needs(reads)

    def _needs(
        self, reads: Mapping[Kind, tuple[int, ...]]
    ) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
        devices, maker, reader, width = self.devices, self.maker, self.reader, self.items.width
        needs: list[tuple[int, ...]] = []
        crossing: list[tuple[int, int]] = []
        nothing: tuple[int, ...] = ()
        for node, (kind, micro_batch, stage, _) in enumerate(self.actions):
            place = micro_batch * width + stage
            device, found = devices[node], nothing
            for offset in reads[kind]:
                other = maker[offset + place]
                if other < 0:
                    continue
                if devices[other] != device:
                    if reader[offset + place] == node:
                        crossing.append((other, offset + place))
                elif other < node:
                    continue
                found = (*found, other)
            needs.append(found)
        return needs, sorted(crossing)


def recomputed_chunks(schedule: Schedule) -> frozenset[tuple[int, int]]:
    """(micro-batch, stage) of what is recomputed before its backward."""
    return frozenset(
        (action.micro_batch, action.stage)
        for order in schedule.orders
        for action in order
        if action.kind is Kind.R
    )
