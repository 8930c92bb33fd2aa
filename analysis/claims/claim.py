"""What a claim is, and what checking it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from analysis.load.results import Results


class Verdict(StrEnum):
    """What the numbers say."""

    YES = "reproduced"
    NO = "not reproduced"
    OPEN = "cannot be told"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One verdict on one claim.

    Attributes:
        origin: of our numbers; ``–`` where there are none.
        verdict: what they say.
        paper: what the paper prints or says.
        ours: the numbers beside it.
        note: what a reader must know, for instance why it cannot be told.
        model: that was run, where it is not the paper's at full size; such findings are of ratios only
            and stand apart.
    """

    origin: str
    verdict: Verdict
    paper: str
    ours: str
    note: str = ""
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper.

    Attributes:
        id: C1 … C25.
        section: where the paper makes it.
        text: what it says, in our words.
        find: checks it against results; yields at least one finding per origin with data.
        experiment: whose records it needs; empty if it follows from schedules alone.
    """

    id: str
    section: str
    text: str
    find: Callable[[Results], Iterator[Finding]]
    experiment: str = ""


def verdict_of(holds: bool) -> Verdict:
    """Reproduced or not."""
    return Verdict.YES if holds else Verdict.NO
