"""A schedule: a placement, and for every device the order of its compute actions."""

from __future__ import annotations

from dataclasses import dataclass

from bitpipe.schedule.action import DOWN, UP, Action
from bitpipe.schedule.placement import Placement


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Compute order per device; communication is added by :mod:`bitpipe.schedule.lowering`.

    Attributes:
        method: the name under which :mod:`bitpipe.schedule.methods` registers it.
        placement: where the stages are.
        micro_batches: N, both directions together, padding included.
        orders: ``orders[device]`` is the device's compute actions, first to last.
        cap: most chunks of activations that a device holds at once, or None.
        split_backward: whether backward comes as I and W instead of B.
        empty: micro-batches that carry no samples (padding, section 1.1).
    """

    method: str
    placement: Placement
    micro_batches: int
    orders: tuple[tuple[Action, ...], ...]
    cap: int | None = None
    split_backward: bool = False
    empty: frozenset[int] = frozenset()

    @property
    def depth(self) -> int:
        return self.placement.depth

    @property
    def chunks(self) -> int:
        return self.placement.chunks


def pipe_of(micro_batch: int, micro_batches: int, bidirectional: bool) -> int:
    """The pipe of a micro-batch: of N, the first ⌈N/2⌉ go down, the others up."""
    return UP if bidirectional and micro_batch >= (micro_batches + 1) // 2 else DOWN


def pipe_rule(micro_batches: int) -> str:
    """The rule of :func:`pipe_of` in words, for two pipes and this N."""
    down = (micro_batches + 1) // 2
    here = " and ".join(
        f"{first}–{last} {way}" if first < last else f"{first} {way}"
        for first, last, way in ((0, down - 1, "down"), (down, micro_batches - 1, "up"))
        if first <= last
    )
    return f"of N micro-batches the first ⌈N/2⌉ go down, the others up, here {here}"
