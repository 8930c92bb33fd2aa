"""What actions cost: one set of numbers for orders, searches and the simulator.

The paper's unit is one stage forward (section 1.3), and :data:`WORTH` is the one place that says what the
other actions are worth in it. :class:`Costs` prices every stage in that unit, from that table or as
measured; :class:`ActionCosts` is what the simulator asks of them and of its own cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from bitpipe.errors import InputError
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.placement import Placement

WORTH: Mapping[Kind, int] = MappingProxyType({Kind.F: 1, Kind.B: 2, Kind.I: 1, Kind.W: 1, Kind.R: 1})
"""Of a stage's compute actions, in forwards of that stage."""
NAMES: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.F: "forward",
        Kind.B: "backward",
        Kind.I: "input_grad",
        Kind.W: "weight_grad",
        Kind.R: "recompute",
    }
)

Cost = float | tuple[float, ...]


class ActionCosts(Protocol):
    """What a simulated iteration costs; transfers and collectives take what links make of the bytes."""

    def seconds(self, rank: int, action: Action) -> float:
        """Of a compute action or STEP on a global rank."""

    def size(self, action: Action) -> float:
        """Bytes of a SEND, SYNC or TIE."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What actions cost, in units of one stage forward (the paper's unit, section 1.3).

    A number is the time for 1/D of the model: one of a device's v chunks takes 1/v of it.
    A tuple gives every one of the v·D stages of a pipe its own time instead, for unequal stages.

    Attributes:
        forward: of F.
        backward: of B.
        input_grad: of I.
        weight_grad: of W.
        recompute: of R.
        transfer: delay of an activation or gradient that crosses devices.
    """

    forward: Cost = float(WORTH[Kind.F])
    backward: Cost = float(WORTH[Kind.B])
    input_grad: Cost = float(WORTH[Kind.I])
    weight_grad: Cost = float(WORTH[Kind.W])
    recompute: Cost = float(WORTH[Kind.R])
    transfer: float = 0.0

    def steps(self, codes: Codes) -> list[float]:
        """Duration of every step of a micro-batch (:mod:`codes`) in ticks of 1/v unit.

        Raises:
            InputError: a tuple does not have one entry per stage.
        """
        kinds = dict.fromkeys(kind for kind, _ in codes.step_names)
        ticks = {kind: self.ticks(kind, codes.placement) for kind in kinds}
        return [ticks[kind][stage] for kind, stage in codes.step_names]

    def ticks(self, kind: Kind, placement: Placement) -> list[float]:
        """Duration of an action at every stage, in ticks of 1/v unit.

        Raises:
            InputError: there is not one value for each stage.
        """
        cost: Cost = getattr(self, NAMES[kind])
        if not isinstance(cost, tuple):
            return [cost] * placement.stages
        if len(cost) != placement.stages:
            wrong = f"costs.{NAMES[kind]}"
            raise InputError(wrong, len(cost), f"expected one value for each of {placement.stages} stages")
        return [value * placement.chunks for value in cost]

    def on(self, placement: Placement) -> StageCosts:
        """The same for the simulator, in units; messages have no bytes, for links that only delay."""
        chunks = placement.chunks
        return StageCosts({kind: [t / chunks for t in self.ticks(kind, placement)] for kind in NAMES})


UNIT = Costs()


@dataclass(frozen=True)
class StageCosts:
    """:class:`ActionCosts` by kind and stage, the same on every rank; a STEP takes no time."""

    table: Mapping[Kind, list[float]]

    def seconds(self, rank: int, action: Action) -> float:
        return self.table[action.kind][action.stage] if action.kind in self.table else 0.0

    def size(self, action: Action) -> float:
        return 0.0


@dataclass(frozen=True)
class ListedCosts:
    """:class:`ActionCosts` that were observed: one number per rank and action.

    Attributes:
        listed: seconds of (global rank, action).
        size: bytes of an action.
    """

    listed: Mapping[tuple[int, Action], float]
    size: Callable[[Action], float]

    def seconds(self, rank: int, action: Action) -> float:
        """See :class:`ActionCosts`.

        Raises:
            InputError: the action is not listed.
        """
        try:
            return self.listed[rank, action]
        except KeyError:
            raise InputError(
                "durations", f"({rank}, {action})", "missing: every compute action and STEP needs one"
            ) from None
