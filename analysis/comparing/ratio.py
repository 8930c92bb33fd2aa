"""One cell's throughput over another's: its value, the interval it is known within, what that says.

Every table and claim asks :func:`ratio_of`; where an interval comes from is decided here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from analysis.comparing.verdict import EQUAL_WITHIN, Verdict, verdict_of
from experiments.running.bootstrap import bootstrap_ratio
from experiments.running.repeats import count, paired_ratio, paired_spread, repeats_for_equality

ERROR = 0.05
"""Probability of each one-sided error: an interval of 90% is two tests at 5%, the usual pair of tests
for equivalence, and each of its ends a test of its own."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two throughputs.

    Attributes:
        value: its best estimate.
        low, high: its interval; both ``value`` where nothing varies.
        sure: False where the two were not repeated together: the ranges of single runs lie apart
            by chance often enough to decide nothing.
        clear: how far beyond 1 the interval must lie to be called faster or slower. A few repeats
            agree with each other by chance, so theirs must clear the margin of equality.
        exact: whether neither throughput varies.
    """

    value: float
    low: float
    high: float
    sure: bool = True
    clear: float = 0.0
    exact: bool = False

    @property
    def verdict(self) -> Verdict:
        """Faster, slower, equal (within 0.5%) or undecided."""
        return verdict_of(self.low, self.high, clear=self.clear) if self.sure else "undecided"

    @property
    def not_behind(self) -> bool:
        """Whether it is at least 1 but for the margin of equality (non-inferiority)."""
        return self.sure and self.low >= 1 - EQUAL_WITHIN

    def times(self, factor: float) -> Ratio:
        """The ratio after one side was counted per ``factor``, for instance per GPU."""
        ends = {name: getattr(self, name) * factor for name in ("value", "low", "high")}
        return replace(self, **ends)

    def over(self, other: Ratio) -> Ratio:
        """How much larger this gain is than another, independent one, as a ratio around 1."""
        value = 1 + self.value - other.value
        below = ((self.value - self.low) ** 2 + (other.high - other.value) ** 2) ** 0.5
        above = ((self.high - self.value) ** 2 + (other.value - other.low) ** 2) ** 0.5
        return Ratio(
            value=value,
            low=value - below,
            high=value + above,
            sure=self.sure and other.sure,
            clear=max(self.clear, other.clear),
            exact=self.exact and other.exact,
        )

    def __str__(self) -> str:
        interval = "" if self.exact else f" [{100 * (self.low - 1):+.2f}, {100 * (self.high - 1):+.2f}]"
        return f"{100 * (self.value - 1):+.2f}%{interval}"


def ratio_of(row: Row, base: Row, tests: int = 1) -> Ratio:
    """A row's samples/s over another's; both must have a value.

    Args:
        row, base: rows of the cells' frame.
        tests: by how many such ratios a statement can be refuted, of which any one is enough; each is
            then held to its share of :data:`ERROR` (Bonferroni). A statement that needs every one of
            its ratios needs no correction.
    """
    # Virtual cells of one block carry resampled times; measured ones are paired within repeats.
    value = float(row["samples_per_s"]) / float(base["samples_per_s"])
    metrics = row.get("metrics"), base.get("metrics")
    if isinstance(metrics[0], Mapping) and isinstance(metrics[1], Mapping):
        shared = bootstrap_ratio(metrics[0], metrics[1], 1 - ERROR / tests)
        if shared is not None:
            return Ratio(value=shared[0], low=shared[1], high=shared[2])
        paired = paired_ratio(metrics[0], metrics[1], int(row["measured"]), 1 - 2 * ERROR / tests)
        if paired is not None:
            mean, low, high = paired
            return Ratio(value=mean, low=low, high=high, clear=EQUAL_WITHIN)
    names = ("samples_per_s_low", "samples_per_s_high")
    if any(pd.isna(side.get(name, pd.NA)) for side in (row, base) for name in names):
        return Ratio(value=value, low=value, high=value, exact=True)
    (low, high), (base_low, base_high) = ([float(side[name]) for name in names] for side in (row, base))
    return Ratio(value=value, low=low / base_high, high=high / base_low, sure=False)


def mean_of(ratios: Sequence[Ratio]) -> Ratio:
    """The mean of several, within the means of their ends (as if all erred alike)."""
    return Ratio(
        value=fmean(one.value for one in ratios),
        low=fmean(one.low for one in ratios),
        high=fmean(one.high for one in ratios),
        sure=all(one.sure for one in ratios),
        clear=max(one.clear for one in ratios),
        exact=all(one.exact for one in ratios),
    )


def decide(rows: pd.DataFrame, name: str) -> str | None:
    """The name of the row with the highest throughput, if it stands out.

    Returns:
        ``best``; ``equal: a, b`` where every row that is not slower than the best one equals it;
        ``undecided: a, b`` where of one row that cannot be told; None if fewer than two rows have a value.
    """
    valid: list[Any] = rows[rows["status"].eq("ok") & rows["samples_per_s"].notna()].to_dict("records")
    if len(valid) < 2:
        return None
    best = max(valid, key=lambda row: float(row["samples_per_s"]))
    words = {row[name]: ratio_of(row, best).verdict for row in valid if row is not best}
    close = [row[name] for row in valid if words.get(row[name]) != "slower"]
    if len(close) == 1:
        return str(best[name])
    equal = all(words.get(one, "equal") == "equal" for one in close)
    return f"{'equal' if equal else 'undecided'}: {', '.join(close)}"


def repeats_needed(rows: Iterable[Row]) -> str:
    """How many repeats equality needs, in a sentence, by the spread of the rows' ratios within repeats.

    Empty where no two rows were repeated together.
    """
    groups: dict[str, list[tuple[Mapping[str, Any], int]]] = {}
    for row in rows:
        metrics = row.get("metrics")
        if not isinstance(metrics, Mapping) or metrics.get("bootstrap_seconds"):
            continue
        if count(metrics) > 1 and metrics.get("measurement"):
            groups.setdefault(str(metrics["measurement"]), []).append((metrics, int(row["measured"])))
    squares, repeats = [], 0
    for (base, _), *others in groups.values():
        for metrics, measured in others:
            spread = paired_spread(metrics, base, measured)
            if spread is not None:
                squares.append(spread**2)
                repeats = max(repeats, count(metrics))
    if not squares:
        return ""
    spread = (sum(squares) / len(squares)) ** 0.5
    needed = repeats_for_equality(spread, EQUAL_WITHIN)
    what = "at least 3" if needed <= 3 else f"about {needed}" if needed <= 1000 else "over 1000"
    return (
        f"Ratios within a repeat spread by {100 * spread:.2g}% ({len(squares)} comparisons, up to "
        f"{repeats} repeats): to be called equal, two that are need {what} repeats (repeats=…)."
    )
