"""A schedule: a placement, and for every device the order of its compute actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bitpipe.schedule.action import Action, Kind, pipe_word
from bitpipe.schedule.placement import Placement


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Compute order per device; communication is added by :mod:`bitpipe.schedule.lowering`.

    Attributes:
        method: the name under which :mod:`bitpipe.schedule.methods` registers it.
        placement: where the stages are.
        pipes: ``pipes[m]`` is the pipe of micro-batch m, padding included.
        orders: ``orders[device]`` is the device's compute actions, first to last.
        cap: most chunks of activations that a device holds at once, or None.
        empty: micro-batches that carry no samples (padding, section 1.1).
    """

    method: str
    placement: Placement
    pipes: tuple[int, ...]
    orders: tuple[tuple[Action, ...], ...]
    cap: int | None = None
    empty: frozenset[int] = frozenset()

    @property
    def depth(self) -> int:
        return self.placement.depth

    @property
    def chunks(self) -> int:
        return self.placement.chunks

    @property
    def micro_batches(self) -> int:
        """N, all pipes together."""
        return len(self.pipes)

    @cached_property
    def split_backward(self) -> bool:
        """Whether any backward comes as I and W instead of B."""
        return any(action.kind is Kind.I for order in self.orders for action in order)


def even_pipes(micro_batches: int, pipes: int) -> tuple[int, ...]:
    """The pipe of every micro-batch where nobody says otherwise: blocks as equal as possible.

    With two pipes the first ⌈N/2⌉ go down, the others up.
    """
    each, more = divmod(micro_batches, pipes)
    return tuple(pipe for pipe in range(pipes) for _ in range(each + (pipe < more)))


def pipe_rule(pipes: tuple[int, ...]) -> str:
    """Which micro-batches go where, in words."""
    blocks: list[list[int]] = []
    for micro_batch, pipe in enumerate(pipes):
        if blocks and blocks[-1][2] == pipe:
            blocks[-1][1] = micro_batch
        else:
            blocks.append([micro_batch, micro_batch, pipe])
    return " and ".join(
        f"{first}–{last} {pipe_word(pipe)}" if first < last else f"{first} {pipe_word(pipe)}"
        for first, last, pipe in blocks
    )
