"""What actions do: the one table from which everything else about them follows.

Dependencies, messages, receive buffers, activations held, memory curves and the static checks are
read off :data:`EFFECTS`. An item belongs to a micro-batch at a stage; ``(item, shift)`` is the one at
``stage + shift``. INPUT of stage 0 and GRAD of the last stage come from outside: data and loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from bitpipe.schedule.action import Kind


class Item(IntEnum):
    """What actions read and make."""

    INPUT = 0  # the activation that a stage starts from
    GRAD = 1  # the gradient of its output
    STASH = 2  # what a forward keeps for the backward
    WSTASH = 3  # what an input gradient keeps for the weight gradient
    WEIGHTS = 4
    WGRAD = 5  # the sum of the weights' gradients, over micro-batches


Parts = tuple[tuple[Item, int], ...]


class Effect(NamedTuple):
    """What an action needs, what is there after it, and what nobody needs any more."""

    reads: Parts
    makes: Parts
    frees: Parts = ()


_INPUT, _GRAD, _STASH, _WSTASH = ((item, 0) for item in (Item.INPUT, Item.GRAD, Item.STASH, Item.WSTASH))
_WEIGHTS, _WGRAD = (Item.WEIGHTS, 0), (Item.WGRAD, 0)

EFFECTS: Mapping[Kind, Effect] = MappingProxyType(
    {
        Kind.F: Effect(reads=(_INPUT, _WEIGHTS), makes=((Item.INPUT, 1), _STASH)),
        Kind.B: Effect(
            reads=(_GRAD, _STASH, _WEIGHTS), makes=((Item.GRAD, -1), _WGRAD), frees=(_INPUT, _GRAD, _STASH)
        ),
        Kind.I: Effect(reads=(_GRAD, _STASH, _WEIGHTS), makes=((Item.GRAD, -1), _WSTASH), frees=(_STASH,)),
        Kind.W: Effect(reads=(_WSTASH,), makes=(_WGRAD,), frees=(_INPUT, _GRAD, _WSTASH)),
        Kind.R: Effect(reads=(_INPUT, _WEIGHTS), makes=(_STASH,)),
    }
)
FORGETFUL = EFFECTS[Kind.F]._replace(makes=((Item.INPUT, 1),))
"""F of a chunk that has an R, which recomputes what this forward does not keep."""

FINISHES = frozenset(kind for kind, effect in EFFECTS.items() if _WGRAD in effect.makes)
"""The last action of a micro-batch at a stage: B or W."""
RECEIVES, WAITS, SENDS = (
    {Kind(f"{verb}_{letter}"): item for letter, item in zip("FBSXPG", Item, strict=True)}
    for verb in ("RECV", "WAIT", "SEND")
)
MOVES = {**RECEIVES, **WAITS, **SENDS}
RECEIVING, WAITING, SENDING = tuple(RECEIVES), tuple(WAITS), tuple(SENDS)
"""By item."""


class Collect(NamedTuple):
    """What a collective does to an item of a stage, over all who hold the stage."""

    op: str  # all_reduce, reduce_scatter or all_gather
    item: Item


COLLECTS: Mapping[Kind, Collect] = MappingProxyType(
    {
        Kind.SYNC: Collect("all_reduce", Item.WGRAD),
        Kind.TIE: Collect("all_reduce", Item.WGRAD),
        Kind.SCATTER: Collect("reduce_scatter", Item.WGRAD),
        Kind.GATHER: Collect("all_gather", Item.WEIGHTS),
    }
)


def keeps(kind: Kind, *, recomputed: bool = False) -> int:
    """By how many chunks of activations an action changes what its device holds.

    A chunk of activations is a STASH or WSTASH: it counts from the action that makes it to the one that
    frees it for good. ``recomputed``: the chunk has an R.
    """
    effect = FORGETFUL if recomputed and kind is Kind.F else EFFECTS[kind]
    made, freed = ({_STASH, _WSTASH}.intersection(parts) for parts in (effect.makes, effect.frees))
    return len(made) - len(freed)
