"""What the checks on records share: the cells of each origin, ratios, and what they say of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.claims.claim import Finding, Verdict
from analysis.comparing.compare_rows import model_names, paper_scale, ran_elsewhere, refusal
from analysis.comparing.ratio import Ratio, ratio_of
from analysis.drawing.labels import method
from analysis.load.results import NoResults, Results

PER_ORIGIN = Callable[[str, pd.DataFrame], Iterator[Finding]]
Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
TABLE6, PP, DP = "table6_ablation", "fig9ab_throughput_pp", "fig9cd_throughput_dp"


def per_origin(
    results: Results, experiment: str, paper: str, check: PER_ORIGIN, *, own_models: bool = False
) -> Iterator[Finding]:
    """Run a check on each origin's finished cells of the paper's models; say so where there are none.

    Another model, one of the paper's that was shrunk, or other devices than the paper's are checked alone
    and named in their findings, unless the experiment has models of its own.
    """
    try:
        rows = results.experiment(experiment, every_model=not own_models)
    except NoResults as error:
        yield Finding(origin="–", verdict=Verdict.OPEN, paper=paper, ours="", note=error.allowed)
        return
    other = _apart(rows, own_models)
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


def _apart(rows: pd.DataFrame, own_models: bool) -> pd.Series:
    """What a row's findings name beside their origin: its model and devices where not the paper's."""
    models = model_names(rows).where(~paper_scale(rows) & (not own_models), "").fillna("")
    places = rows["cluster"].where(ran_elsewhere(rows), "").fillna("")
    named = model_names(rows).where(places != "", models).fillna("")
    return named.where(places == "", named + " on " + places)


def ok(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["status"] == "ok") & rows["samples_per_s"].notna()]


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[Any] = rows.to_dict("records")
    return records


def judged(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    holds: Callable[[Ratio], Verdict],
    tests: int = 1,
) -> Verdict:
    """What ``holds`` says of a ratio that is one of ``tests``, all of which a claim needs.

    To reproduce it each must hold, which needs no correction; to refute it any one is enough, so that
    is told from an interval that allows for their number.
    """
    found = holds(ratio_of(one, other))
    if found is Verdict.NO and holds(ratio_of(one, other, tests)) is not Verdict.NO:
        return Verdict.OPEN
    return found


def ahead(ratio: Ratio) -> Verdict:
    """Whether it is above 1; equal (within the margin) is not."""
    words = {"faster": Verdict.YES, "undecided": Verdict.OPEN}
    return words.get(ratio.verdict, Verdict.NO)


def at_least(ratio: Ratio) -> Verdict:
    """Whether it is not behind by more than the margin of equality."""
    if ratio.verdict == "slower":
        return Verdict.NO
    return Verdict.YES if ratio.not_behind else Verdict.OPEN


def alike(ratio: Ratio) -> Verdict:
    """Whether it makes no difference."""
    words = {"equal": Verdict.YES, "undecided": Verdict.OPEN}
    return words.get(ratio.verdict, Verdict.NO)


def pairs_of(rows: pd.DataFrame, variant: str) -> dict[tuple[int, int], Pair]:
    """Full and a variant per (D, N); rows that may not be compared are left out."""
    pairs: dict[tuple[int, int], Pair] = {}
    for key, group in rows.groupby(["depth", "micro_batches"]):
        by = {row["variant"]: row for row in records(group)}
        if {"full", variant} <= set(by) and not refusal(group):
            pairs[int(str(key[0])), int(str(key[1]))] = by["full"], by[variant]
    return pairs


def gains_of(rows: pd.DataFrame, variant: str, tests: int = 1) -> dict[tuple[int, int], Ratio]:
    """How much faster full is than a variant, per (D, N)."""
    return {key: ratio_of(*pair, tests) for key, pair in pairs_of(rows, variant).items()}


def all_hold(verdicts: Sequence[Verdict]) -> Verdict:
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


def percent(key: tuple[int, int], gain: Ratio) -> str:
    """A gain in words, its interval where it has one."""
    return f"D={key[0]} N={key[1]}: {gain}"


def per_method(values: Mapping[Any, float], form: str) -> str:
    return ", ".join(f"{method(str(name)).name} {form.format(value)}" for name, value in values.items())
