"""What the checks on records share: the cells of each origin, gains, orders, and their words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from analysis.claims.claim import Finding, Verdict
from analysis.comparing.compare_rows import model_names, paper_scale, ratio_interval, refusal, single_runs
from analysis.drawing.labels import method
from analysis.load.results import NoResults, Results

PER_ORIGIN = Callable[[str, pd.DataFrame], Iterator[Finding]]
NOISE = 0.005  # the paper's own cells repeat to about this; smaller gaps decide nothing
SURE = 1 - 0.05 / 24
"""Confidence of a single comparison: one claim makes up to 24 of them, and one can refute it."""
TABLE6, PP, DP = "table6_ablation", "fig9ab_throughput_pp", "fig9cd_throughput_dp"


def per_origin(
    results: Results, experiment: str, paper: str, check: PER_ORIGIN, *, own_models: bool = False
) -> Iterator[Finding]:
    """Run a check on each origin's finished cells of the paper's models; say so where there are none.

    Another model, or one of the paper's that was shrunk, is checked alone and named in its findings,
    unless the experiment has models of its own.
    """
    try:
        rows = results.experiment(experiment, every_model=not own_models)
    except NoResults as error:
        yield Finding(origin="–", verdict=Verdict.OPEN, paper=paper, ours="", note=error.allowed)
        return
    other = model_names(rows).where(~paper_scale(rows) & (not own_models), "").fillna("")
    for (origin, trained), group in rows.groupby(["origin", other.rename("other")], sort=False):
        found = list(check(str(origin), group)) or [
            Finding(
                origin=str(origin),
                verdict=Verdict.OPEN,
                paper=paper,
                ours="",
                note=f"the cells that it needs are not among those of {experiment}",
            )
        ]
        yield from (replace(one, model=str(trained)) for one in found)


def ok(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["status"] == "ok") & rows["samples_per_s"].notna()]


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[Any] = rows.to_dict("records")
    return records


class Gain(NamedTuple):
    """How much faster full is than a variant, as a share, with its interval.

    ``sure`` is False for noisy runs that were not repeated: their ranges decide nothing.
    """

    value: float
    low: float
    high: float
    sure: bool = True


def gain(one: Mapping[str, Any], other: Mapping[str, Any]) -> Gain:
    """How much faster ``one`` is; a value without noise is its own interval."""
    value = one["samples_per_s"] / other["samples_per_s"] - 1
    low, high = ratio_interval(one, other, SURE)
    if low is None or high is None:
        return Gain(value, value, value)
    return Gain(value, low - 1, high - 1, not single_runs(one, other))


def gains_of(rows: pd.DataFrame, variant: str) -> dict[tuple[int, int], Gain]:
    """The gain per (D, N); rows that may not be compared are left out."""
    gains = {}
    for key, group in rows.groupby(["depth", "micro_batches"]):
        by = {row["variant"]: row for row in records(group)}
        if {"full", variant} <= set(by) and not refusal(group):
            gains[int(str(key[0])), int(str(key[1]))] = gain(by["full"], by[variant])
    return gains


def above(a: Gain, b: Gain) -> Verdict:
    """Whether gain a is above gain b; intervals that overlap leave it open."""
    if not (a.sure and b.sure):
        return Verdict.OPEN
    return Verdict.YES if a.low > b.high else Verdict.NO if a.high < b.low else Verdict.OPEN


def none(gain: Gain) -> Verdict:
    """Whether there is no gain, to within :data:`NOISE`.

    An interval that reaches both sides of that bound leaves it open.
    """
    if gain.sure and gain.low > -NOISE and gain.high < NOISE:
        return Verdict.YES
    return Verdict.OPEN if not gain.sure or (gain.low < NOISE and gain.high > -NOISE) else Verdict.NO


def ordered(gaps: list[float], noise: float = NOISE / 5) -> Verdict:
    """Whether all gaps are positive; a gap within the noise leaves it open."""
    if all(gap > noise for gap in gaps):
        return Verdict.YES
    return Verdict.NO if any(gap < -noise for gap in gaps) else Verdict.OPEN


def at_least(a: Mapping[str, Any], b: Mapping[str, Any]) -> Verdict:
    """Whether a's throughput is at least b's; an interval of the ratio around 1 leaves it open.

    A difference below a millionth counts as equal, and equal is at least.
    """
    lead = gain(a, b)
    if not lead.sure:
        return Verdict.OPEN
    if lead.low >= -1e-6:
        return Verdict.YES
    return Verdict.NO if lead.high < -1e-6 else Verdict.OPEN


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict on several: refuted by one, open while one is open."""
    return next((one for one in (Verdict.NO, Verdict.OPEN) if one in verdicts), Verdict.YES)


def in_grid(found: Verdict, have: int, wanted: int, what: str) -> tuple[Verdict, str]:
    """A verdict on a whole grid, and what to say: parts of it can refute, only all of it reproduces."""
    if have >= wanted:
        return found, ""
    return (Verdict.OPEN if found is Verdict.YES else found), f"; {have} of {wanted} {what}"


def uncalibrated(rows: pd.DataFrame) -> set[int]:
    """The depths with cells whose cost model was not fitted to such devices and links."""
    return {int(depth) for depth in rows.loc[rows["calibrated"].eq(False).fillna(False), "depth"]}


def percent(key: tuple[int, int], gain: Gain) -> str:
    """A gain in words, its interval where it has one."""
    interval = "" if gain.low == gain.high else f" [{100 * gain.low:+.2f}, {100 * gain.high:+.2f}]"
    return f"D={key[0]} N={key[1]}: {100 * gain.value:+.2f}%{interval}"


def per_method(values: Mapping[Any, float], form: str) -> str:
    return ", ".join(f"{method(str(name)).name} {form.format(value)}" for name, value in values.items())
