"""What the checks on records share: the cells of each origin, gains, orders, and their words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from analysis.claims.claim import Finding, Verdict
from analysis.compare_rows import interval_end, model_names, paper_scale, refusal
from analysis.labels import method
from analysis.results import NoResults, Results

PER_ORIGIN = Callable[[str, pd.DataFrame], Iterator[Finding]]
NOISE = 0.005  # the paper's own cells repeat to about this; smaller gaps decide nothing
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
    """How much faster full is than a variant, as a share, with the interval of both runs."""

    value: float
    low: float
    high: float


def gains_of(rows: pd.DataFrame, variant: str) -> dict[tuple[int, int], Gain]:
    """The gain per (D, N); rows that may not be compared are left out."""
    gains = {}
    name = "samples_per_s"
    for key, group in rows.groupby(["depth", "micro_batches"]):
        by = {row["variant"]: row for row in records(group)}
        if {"full", variant} <= set(by) and not refusal(group):
            full, other = by["full"], by[variant]
            gains[int(str(key[0])), int(str(key[1]))] = Gain(
                full[name] / other[name] - 1,
                interval_end(full, name, "low") / interval_end(other, name, "high") - 1,
                interval_end(full, name, "high") / interval_end(other, name, "low") - 1,
            )
    return gains


def above(a: Gain, b: Gain) -> Verdict:
    """Whether gain a is above gain b; intervals that overlap leave it open."""
    return Verdict.YES if a.low > b.high else Verdict.NO if a.high < b.low else Verdict.OPEN


def none(gain: Gain) -> Verdict:
    """Whether there is no gain, to within :data:`NOISE`; an interval around 0 leaves it open."""
    if abs(gain.value) < NOISE:
        return Verdict.YES
    return Verdict.OPEN if gain.low < NOISE and gain.high > -NOISE else Verdict.NO


def ordered(gaps: list[float], noise: float = NOISE / 5) -> Verdict:
    """Whether all gaps are positive; a gap within the noise leaves it open."""
    if all(gap > noise for gap in gaps):
        return Verdict.YES
    return Verdict.NO if any(gap < -noise for gap in gaps) else Verdict.OPEN


def at_least(a: Mapping[str, Any], b: Mapping[str, Any]) -> Verdict:
    """Whether a's throughput is at least b's; intervals that overlap leave it open.

    A difference below a millionth counts as equal, and equal is at least.
    """
    if a["samples_per_s"] >= b["samples_per_s"] * (1 - 1e-6):
        close = abs(a["samples_per_s"] / b["samples_per_s"] - 1) <= 1e-6
        sure = close or interval_end(a, "samples_per_s", "low") > interval_end(b, "samples_per_s", "high")
        return Verdict.YES if sure else Verdict.OPEN
    lost = interval_end(a, "samples_per_s", "high") < interval_end(b, "samples_per_s", "low")
    return Verdict.NO if lost else Verdict.OPEN


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
