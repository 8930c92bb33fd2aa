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
    R3@5d        forward again, to make anew what the forward did not keep
    SEND_S3@5d   RECV, WAIT and SEND also move a stash (S), what I leaves for W (X), weights (P: parameters)
                 or their gradient (G) of a micro-batch and stage
    SYNC@5d      start the gradient all-reduce of stage 5, from its replica in the down pipe
    SCATTER@5d   start its reduce-scatter: every replica gets the sum of its share
    GATHER@5d    start the all-gather of the weights of which every replica has stepped its share
    TIE@0d       start the all-reduce of a tied embedding that stages 0 and last hold apart
    STEP         wait for every collective before it, then the optimizer step
    STEP@5d      the same for one stage
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from bitpipe.errors import InputError


class Kind(StrEnum):
    """What an action does; :mod:`bitpipe.schedule.effects` says what that changes."""

    __hash__ = str.__hash__  # an Enum's own is slow, and the largest programs have a million actions

    F = "F"
    B = "B"
    I = "I"  # noqa: E741 - the field's name for the input gradient
    W = "W"
    R = "R"
    RECV_F = "RECV_F"
    RECV_B = "RECV_B"
    RECV_S = "RECV_S"
    RECV_X = "RECV_X"
    RECV_P = "RECV_P"
    RECV_G = "RECV_G"
    WAIT_F = "WAIT_F"
    WAIT_B = "WAIT_B"
    WAIT_S = "WAIT_S"
    WAIT_X = "WAIT_X"
    WAIT_P = "WAIT_P"
    WAIT_G = "WAIT_G"
    SEND_F = "SEND_F"
    SEND_B = "SEND_B"
    SEND_S = "SEND_S"
    SEND_X = "SEND_X"
    SEND_P = "SEND_P"
    SEND_G = "SEND_G"
    SYNC = "SYNC"
    SCATTER = "SCATTER"
    GATHER = "GATHER"
    TIE = "TIE"
    STEP = "STEP"


COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W, Kind.R})
COLLECTIVES = frozenset({Kind.SYNC, Kind.SCATTER, Kind.GATHER, Kind.TIE})
DOWN, UP = 0, 1
_PIPE = r"(d|u|p(?:[2-9]|[1-9]\d{1,8}))"
_TEXT = re.compile(
    rf"([FBIWR]|(?:RECV|WAIT|SEND)_[FBSXPG])(\d{{1,18}})@(\d{{1,18}}){_PIPE}"
    rf"|(SYNC|SCATTER|GATHER|TIE|STEP)@(\d{{1,18}}){_PIPE}|STEP"
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

    ``micro_batch`` counts within the pipeline group, all pipes together. It is -1 for collectives
    and STEP; a STEP of all stages has none.
    """

    kind: Kind
    micro_batch: int = -1
    stage: int = -1
    pipe: int = DOWN

    def __str__(self) -> str:
        if self.stage < 0:
            return self.kind.value
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
