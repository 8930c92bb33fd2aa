"""Memory per device: what stays, and what a program's forwards and backwards hold in between.

Every resident copy of a parameter takes 18 bytes in mixed-precision training with Adam: fp16
weight (2), fp32 gradient (4), fp32 weight (4) and two fp32 moments (8). Activations follow the
program: what they keep and for how long is read off :mod:`bitpipe.schedule.effects`. Empty
micro-batches hold what any other does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.effects import EFFECTS, FINISHES, keeps
from bitpipe.schedule.program import Instruction

GIB = 2**30
BORDERLINE = 77 / 80
"""Share of a device's memory above which a prediction says neither yes nor no: what the CUDA
context, NCCL's buffers and fragmentation take differs between installations."""


class Verdict(StrEnum):
    """Whether a job fits."""

    FITS = "fits"
    BORDERLINE = "borderline"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one device at its peak.

    Attributes:
        parameters: weights, gradients and optimizer state of every resident copy.
        activations: of the micro-batches in flight, logits excluded.
        logits: output of the LM head, where it is held at that moment.
        buffers: receive buffers of gradients in use at that moment.
    """

    parameters: float
    activations: float
    logits: float
    buffers: float

    @property
    def peak(self) -> float:
        return self.parameters + self.activations + self.logits + self.buffers


def verdict(peak: float, capacity: float) -> Verdict:
    """Whether ``peak`` bytes fit into ``capacity`` bytes."""
    if peak > capacity:
        return Verdict.DOES_NOT_FIT
    return Verdict.BORDERLINE if peak > BORDERLINE * capacity else Verdict.FITS


class InFlight(NamedTuple):
    """What is held after an instruction of a row.

    Attributes:
        position: of the instruction.
        activations, logits, buffers: bytes, as in :class:`Memory`.
    """

    position: int
    activations: float
    logits: float
    buffers: float


def in_flight(
    row: Sequence[Instruction],
    recomputed: Container[tuple[int, int]],
    held: Callable[[Action], tuple[float, float]],
    buffer: float,
) -> Iterator[InFlight]:
    """Yield every change of what a device holds besides its parameters.

    A gradient's receive buffer is held from where the receive is posted to the action that frees the
    gradient; that of an activation is counted with the activations that it belongs to. Of a forward
    that is recomputed only its input stays, the size of a buffer; stage 0 has its tokens.

    Args:
        row: a device's instructions.
        recomputed: (micro-batch, stage) of chunks whose forward keeps nothing.
        held: bytes of activations and of logits of an action's chunk.
        buffer: bytes of a receive buffer.
    """
    activations = logits = buffers = 0.0
    received: set[tuple[int, int]] = set()
    for position, (action, *_) in enumerate(row):
        kind, chunk = action.kind, (action.micro_batch, action.stage)
        if kind is Kind.RECV_B:
            received.add(chunk)
            buffers += buffer
        elif kind in EFFECTS:
            again = chunk in recomputed
            if change := keeps(kind, recomputed=again):
                more, more_logits = held(action)
                activations += change * more
                logits += change * more_logits
            if kind in FINISHES and chunk in received:
                buffers -= buffer
            if again and action.stage and kind in (Kind.F, Kind.R):
                buffers += buffer if kind is Kind.F else -buffer
        else:
            continue
        yield InFlight(position, activations, logits, buffers)
