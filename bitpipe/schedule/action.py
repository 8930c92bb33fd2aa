"""An action: one thing that one device does, and its one text form.

The text form serves as repr, parser, figure label, trace name and error message::

    F3@5d        forward of micro-batch 3 at stage 5 of the down pipe
    B3@5u        backward of the same micro-batch number in the up pipe
    F3@5p2       forward in a third pipe: the first two are d and u, further ones p2, p3, …
    I3@5d W3@5d  the two halves of a split backward: input gradient, weight gradient
    RECV_F3@5d   post the receive of the activation that F3@5d consumes
    WAIT_F3@5d   wait for it
    SEND_F3@5d   send it (on the device of stage 4): all three carry the consumer's name
    RECV_B3@5d   the same three for the output gradient that B3@5d (or I3@5d) consumes
    SYNC@5d      start the gradient all-reduce of stage 5, from its replica in the down pipe
    TIE@0d       start the all-reduce of a tied embedding that stages 0 and last hold apart
    STEP         wait for every all-reduce, then the optimizer step
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from bitpipe.errors import InputError


class Kind(StrEnum):
    """What an action does."""

    F = "F"
    B = "B"
    I = "I"  # noqa: E741 - the field's name for the input gradient
    W = "W"
    RECV_F = "RECV_F"
    RECV_B = "RECV_B"
    WAIT_F = "WAIT_F"
    WAIT_B = "WAIT_B"
    SEND_F = "SEND_F"
    SEND_B = "SEND_B"
    SYNC = "SYNC"
    TIE = "TIE"
    STEP = "STEP"


COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
DOWN, UP = 0, 1
_PIPE = r"(d|u|p(?:[2-9]|[1-9]\d{1,8}))"
_TEXT = re.compile(
    rf"([FBIW]|(?:RECV|WAIT|SEND)_[FB])(\d{{1,18}})@(\d{{1,18}}){_PIPE}|(SYNC|TIE)@(\d{{1,18}}){_PIPE}|STEP"
)


def pipe_mark(pipe: int) -> str:
    """A pipe in the text form of actions: d, u, p2, p3, …"""
    return "du"[pipe] if pipe < 2 else f"p{pipe}"


def pipe_word(pipe: int) -> str:
    """A pipe in words, for legends."""
    return ("down", "up")[pipe] if pipe < 2 else f"pipe {pipe}"


def _pipe(mark: str) -> int:
    return "du".index(mark) if mark in "du" else int(mark[1:])


class Action(NamedTuple):
    """One action; ``micro_batch``, ``stage`` and ``pipe`` count from 0 (pipe 0 is down, 1 up).

    ``micro_batch`` counts within the pipeline group, all pipes together. It is -1 for SYNC, TIE
    and STEP.
    """

    kind: Kind
    micro_batch: int = -1
    stage: int = -1
    pipe: int = DOWN

    def __str__(self) -> str:
        if self.kind is Kind.STEP:
            return "STEP"
        where = f"@{self.stage}{pipe_mark(self.pipe)}"
        return f"{self.kind.value}{self.micro_batch if self.micro_batch >= 0 else ''}{where}"

    def __repr__(self) -> str:
        return str(self)

    @property
    def is_compute(self) -> bool:
        return self.kind in COMPUTE


def parse_action(text: str) -> Action:
    """Read one action in its text form.

    Raises:
        InputError: the text is not an action.
    """
    found = _TEXT.fullmatch(text.strip())
    if not found:
        raise InputError("action", text, "expected for instance F3@5d, B0@2u, SEND_F1@4d, SYNC@5d or STEP")
    kind, micro_batch, stage, pipe, sync, sync_stage, sync_pipe = found.groups()
    if kind:
        return Action(Kind(kind), int(micro_batch), int(stage), _pipe(pipe))
    if sync:
        return Action(Kind(sync), -1, int(sync_stage), _pipe(sync_pipe))
    return Action(Kind.STEP)
