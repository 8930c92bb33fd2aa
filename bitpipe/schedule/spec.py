"""What to generate: a method with its parameters, before any order exists."""

from __future__ import annotations

from dataclasses import dataclass

from bitpipe.errors import InputError

MOST_ACTIONS = 10_000_000
"""Larger schedules are refused; one this large takes about a minute and some GB of memory."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """Names one schedule; :func:`bitpipe.schedule.generate` builds it.

    Attributes:
        method: a registered method, or ``file:PATH`` / ``module:function`` for a user's own.
        depth: D, devices of the pipeline group.
        micro_batches: N per iteration and pipeline group, both directions together.
        chunks: v, chunks per device and direction; None is the method's default.
        placement: ``sequential``, ``cyclic`` or ``v``; None is the method's own.
        cap: most chunks of activations a device may hold (bidirectional methods); None is the
            method's own order, without a search for a better one.
        early_forward: the cap at which the middle bubbles vanish (section 1.5).
        split_backward: input and weight gradient as two actions.
        pad: fill up with empty micro-batches to a multiple of D instead of splitting unevenly.
    """

    method: str
    depth: int
    micro_batches: int
    chunks: int | None = None
    placement: str | None = None
    cap: int | None = None
    early_forward: bool = False
    split_backward: bool = False
    pad: bool = False


def check_size(spec: ScheduleSpec, stages: int) -> None:
    """Refuse what would take hours to generate, before anything is generated.

    Raises:
        InputError: more than ``MOST_ACTIONS`` forwards and backwards.
    """
    count = spec.micro_batches
    if spec.pad:
        count = -(-count // spec.depth) * spec.depth
    if 2 * count * stages > MOST_ACTIONS:
        most = MOST_ACTIONS // (2 * stages)
        raise InputError(
            "micro_batches",
            spec.micro_batches,
            f"{stages} stages make {2 * count * stages} actions, at most {MOST_ACTIONS} are generated",
            f"nearest: {most}" if most else "take a smaller depth, too",
        )
