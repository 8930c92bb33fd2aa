"""C1: the twelve mean speedups, and whether they say more than one constant per baseline does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from analysis.claims.cells import DP, PP, ahead, in_grid, ok, per_origin, records
from analysis.claims.claim import Claim, Finding, Verdict
from analysis.comparing.compare_rows import papers_own, refusal
from analysis.comparing.ratio import Ratio, mean_of
from analysis.drawing.labels import method
from analysis.load.results import Results
from analysis.speedups import against_paper, null_errors, skilled, speedups

SETTINGS = 3  # of each panel of Fig. 9: mini-batches or numbers of GPUs
ELSEWHERE = "another model or hardware than the paper's: whether BitPipe leads, not by how much"


@dataclass(frozen=True, kw_only=True)
class Panels:
    """Two panels of Fig. 9: their experiment, each model's figure, what the paper held equal in a pair."""

    experiment: str
    figures: dict[str, str]
    held: list[str]
    readings: list[str] = field(default_factory=list)

    @property
    def paper(self) -> str:
        return f"1.05× to 1.28× ({', '.join(self.figures.values())})"


PANELS = (
    Panels(experiment=PP, figures={"bert_64": "fig9a", "gpt_96": "fig9b"}, held=["gpus", "global_batch"]),
    Panels(
        experiment=DP, figures={"bert_64": "fig9c", "gpt_96": "fig9d"}, held=["gpus"], readings=["reading"]
    ),
)


def mean_speedups(results: Results) -> Iterator[Finding]:
    """The means of ``speedups.csv``: whether BitPipe leads, and whether the sizes show skill.

    A single factor above 1 for all methods would lead everywhere, too, and one constant per baseline is
    close to the paper's numbers; so a lead is only called reproduced where the sizes of all twelve, taken
    together, are closer to the paper's than the constants are.
    """
    errors: dict[str, list[pd.DataFrame]] = {}

    def gather(origin: str, rows: pd.DataFrame, panels: Panels) -> Iterator[Finding]:
        if papers_own(rows).all() and not _refused(rows, panels):
            errors.setdefault(origin, []).append(_means(rows, panels)[0])
        yield from ()

    def check(origin: str, rows: pd.DataFrame, panels: Panels) -> Iterator[Finding]:
        refused = _refused(rows, panels)
        if refused:
            yield Finding(
                origin=origin, verdict=Verdict.OPEN, paper=panels.paper, ours=refused[0], note=refused[1]
            )
            return
        means, ratios = _means(rows, panels)
        own = bool(papers_own(rows).all())
        for one in records(means.dropna(subset=["paper_mean_speedup", "mean_speedup"])):
            reading = str(one.get("reading", ""))
            skill, beside = _skill(errors[origin], reading) if own else (True, ELSEWHERE)
            pairs = ratios[(one["model"], *(one[name] for name in panels.readings), one["compared_with"])]
            slower = sum(pair.value < 1 for pair in pairs)
            leads = ahead(mean_of(pairs))
            found = Verdict.OPEN if leads is Verdict.YES and not skill else leads
            verdict, part = in_grid(found, one["settings"], SETTINGS, "settings of the figure")
            yield Finding(
                origin=origin,
                verdict=verdict,
                paper=f"{one['figure']} against {method(one['compared_with']).name}: "
                f"{one['paper_mean_speedup']:.2f}×",
                ours=f"{one['mean_speedup']:.3f}× over {one['settings']} settings"
                + (f", reading {reading}" if reading else "")
                + (f", BitPipe slower in {slower} of them" if slower else ""),
                note=(f"{one['error_percent']:+.1f}%; " if own else "") + beside + part,
            )

    for panels in PANELS:
        list(per_origin(results, panels.experiment, panels.paper, partial(gather, panels=panels)))
    for panels in PANELS:
        yield from per_origin(results, panels.experiment, panels.paper, partial(check, panels=panels))


def _skill(errors: list[pd.DataFrame], reading: str) -> tuple[bool, str]:
    """Of all panels at one reading; of those without readings at the worse of the others'."""
    every = pd.concat(errors, ignore_index=True).dropna(subset=["error_percent"])
    readings: list[str] = list(every["reading"].dropna().unique()) if "reading" in every else []
    found = []
    for name in [reading] if reading else readings or [""]:
        group = every[every["reading"].isna() | every["reading"].eq(name)] if len(readings) else every
        null = null_errors(group["figure"], group["compared_with"])
        found.append(skilled(group["error_percent"], null))
    return min(found)


def _refused(rows: pd.DataFrame, panels: Panels) -> tuple[str, str] | None:
    """Where the cells of a pair may not be compared: the pair, and why."""
    # At N = D the paper's choices of B and W give the methods unequal mini-batches.
    declared = {"global_batch"} if panels.readings else set()
    rows = ok(rows).rename(columns={"ranks": "gpus"})
    for key, pair in rows.groupby(["model", *panels.readings, *panels.held]):
        refused = refusal(pair, declared)
        if refused:
            return str(key), refused
    return None


def _means(rows: pd.DataFrame, panels: Panels) -> tuple[pd.DataFrame, dict[Any, list[Ratio]]]:
    """The means beside the paper's, and the ratios that each is the mean of."""
    rows = ok(rows).rename(columns={"ranks": "gpus"})
    by = ["model", *panels.readings]
    each = speedups(rows, [*by, *panels.held])
    groups = each.dropna(subset=["speedup"]).groupby([*by, "compared_with"])["ratio"]
    return against_paper(each, by, panels.figures), {key: list(group) for key, group in groups}


CLAIM = Claim(
    id="C1",
    section="2.2",
    text="BitPipe gains 1.05× to 1.28× over the other synchronous methods",
    find=mean_speedups,
    experiment=PP,
)
