"""DualPipe (DeepSeek-V3 report, 2024): two copies in opposite directions, forwards beside backwards.

Made for expert parallelism: the forward of one micro-batch and the backward of another share a slot in which
one computes while the other communicates. Here each pair runs as F, then B, and sends when ready: makespan
3N + (D−2)/2, the least at its memory of D+1 activations. Weight gradients wait only where that helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.methods.base import PARTLY, TWO_DIRECTIONS, Method, Plan


class Phase(NamedTuple):
    """One of the two streams that meet on a device: the stage it holds, and whose micro-batches."""

    stage: int
    micro_batches: Sequence[int]


def order(plan: Plan) -> Rows:
    """On the first half of the devices phase 0 is the down pipe, on the second half the up pipe."""
    codes, depth = plan.codes, plan.placement.depth
    pipes = [[m for m, pipe in enumerate(codes.pipes) if pipe == which] for which in (0, 1)]
    rows: Rows = []
    for device in range(depth):
        phases = [Phase(device, pipes[0]), Phase(depth - 1 - device, pipes[1])]
        if device >= depth // 2:
            phases.reverse()
        rows.append(meeting(codes, depth // 2, min(device, depth - 1 - device), phases, plan.split))
    return rows


def meeting(codes: Codes, half: int, place: int, phases: Sequence[Phase], split: bool) -> list[int]:
    """A device's row, in eight steps as the authors' code goes through them.

    Args:
        codes: numbering with a split backward.
        half: devices between the two ends of a stream.
        place: this device's distance from where phase 0 enters.
        phases: what meets here.
        split: every backward, not only those whose weight gradients wait.
    """
    row: list[int] = []
    waiting: list[int] = []
    forwards, backwards = ([iter(phase.micro_batches) for phase in phases] for _ in range(2))
    ahead = half - place - 1
    each = len(phases[0].micro_batches)

    def forward(phase: int) -> None:
        row.append(codes.forward(next(forwards[phase]), phases[phase].stage))

    def backward(phase: int, *, waits: bool = False) -> None:
        m, stage = next(backwards[phase]), phases[phase].stage
        row.append(codes.backward(m, stage))
        if waits:
            waiting.append(codes.weight(m, stage))
        elif split:
            row.append(codes.weight(m, stage))

    for _ in range(2 * ahead):
        forward(0)
    for _ in range(place + 1):
        forward(0)
        forward(1)
    for _ in range(ahead):
        backward(1, waits=True)
        row.append(waiting.pop(0))
        forward(1)
    for _ in range(each - 2 * half + place + 1):
        for phase in (0, 1):
            forward(phase)
            backward(1 - phase)
    for _ in range(ahead):
        backward(1)
        forward(1)
        backward(0)
    turn, odd = divmod(place + 1, 2)
    for i in range(place + 1):
        backward(1, waits=i > turn or (i == turn and not odd))
        backward(0, waits=i >= turn)
    for _ in range(ahead):
        row.append(waiting.pop(0))
        backward(0, waits=True)
    return row + waiting


def nearest(depth: int, micro_batches: int) -> int:
    """N is even and at least 2D."""
    return max(2 * depth, micro_batches + micro_batches % 2)


DUALPIPE = Method(
    name="dualpipe",
    title="DualPipe",
    description="two copies in opposite directions, forwards and backwards in turn",
    family=TWO_DIRECTIONS,
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=True,
    needs="D and N even, N ≥ 2D",
    layout="replica_aware",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: placement.depth + 1,
    splits=PARTLY,
    even_depth=True,
    nearest=nearest,
)
