"""What a method is: facts about it, and the function that orders its actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.placement import Placement

ONE_DIRECTION, TWO_DIRECTIONS = "one direction", "two directions"
ZERO_BUBBLE, LESS_MEMORY = "zero bubble", "controllable memory"
FAMILIES = (ONE_DIRECTION, TWO_DIRECTIONS, ZERO_BUBBLE, LESS_MEMORY)
NEVER, ASKED, PARTLY, ALWAYS = "never", "asked", "partly", "always"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A validated request for one schedule.

    Attributes:
        codes: placement, N and whether backward is split.
        cap: most chunks of activations per device; None if the method has no limit.
        split: whether every backward was asked to be split, where the method splits some.
        search: order by the list rule under ``cap`` instead of the method's own rule.
    """

    codes: Codes
    cap: int | None
    search: bool
    split: bool = False

    @property
    def placement(self) -> Placement:
        return self.codes.placement

    @property
    def micro_batches(self) -> int:
        return self.codes.micro_batches


@dataclass(frozen=True, kw_only=True)
class Method:
    """One pipeline-parallel method; Table 2 of the paper is printed from these fields.

    Attributes:
        name: under which it is registered.
        title: as the paper prints it.
        description: one line.
        family: one of :data:`FAMILIES`.
        placements: those it can use, its own first.
        chunks: v, its default.
        any_chunks: whether other v are allowed, multiples of ``chunk_step``.
        bidirectional: whether a second, mirrored pipe runs on the same devices.
        needs: what N or D must be, in words.
        layout, sync_mode: of a job, unless it says otherwise.
        order: builds the rows.
        default_cap: chunks of activations per device that its own rule never exceeds.
        tunable_cap: whether ``cap`` and ``early_forward`` may be asked for.
        splits: its backward into input and weight gradient: ``never``, where ``asked`` to,
            ``partly`` (all of them where asked to), ``always``.
        multiple_of_depth: whether N must be a multiple of D.
        even_depth: whether its order is defined for even D only.
        nearest: ``nearest(D, N)`` is the N nearest to the wanted one that it can have.
    """

    name: str
    title: str
    description: str
    family: str
    placements: tuple[str, ...]
    chunks: int
    any_chunks: bool
    bidirectional: bool
    needs: str
    layout: str
    sync_mode: str
    order: Callable[[Plan], Rows]
    default_cap: Callable[[Placement, int], int | None]
    tunable_cap: bool = False
    splits: str = ASKED
    multiple_of_depth: bool = False
    chunk_step: int = 1
    even_depth: bool = False
    nearest: Callable[[int, int], int] = lambda depth, micro_batches: micro_batches
