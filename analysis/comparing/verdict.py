"""One word for a ratio that is known within an interval."""

from __future__ import annotations

from typing import Literal

EQUAL_WITHIN = 0.005  # ratios this close to 1 make no difference to a user, and the paper prints none

Verdict = Literal["faster", "slower", "equal", "undecided"]


def verdict_of(low: float, high: float, margin: float = EQUAL_WITHIN, clear: float = 0.0) -> Verdict:
    """What the interval [low, high] of one throughput over another says.

    ``equal`` where the whole interval lies within ``margin`` of 1, else ``faster`` or ``slower``
    where it lies on one side of 1 and at least ``clear`` away from it, else ``undecided``.
    """
    if 1 - margin <= low and high <= 1 + margin:
        return "equal"
    if low > 1 + clear:
        return "faster"
    return "slower" if high < 1 - clear else "undecided"
