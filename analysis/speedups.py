"""BitPipe's speedups over the other methods, and the paper's twelve means beside them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.comparing.compare_rows import papers_own
from analysis.comparing.ratio import Ratio, ratio_of
from analysis.drawing.labels import canonical_method
from analysis.load.paper import printed

OURS = "bitpipe"


def speedups(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row per cell of another method: BitPipe's throughput over its own.

    Cells are paired on ``keys`` (which must include what the paper held equal); a pair lacks a
    ``speedup`` and its ``ratio`` (a :class:`Ratio`, with its interval) where either has no throughput.
    """
    both = rows.to_dict("records")
    ours = {tuple(row[key] for key in keys): row for row in both if row["method"] == OURS}
    others = rows[rows["method"] != OURS].copy()
    ratios: list[Ratio | None] = []
    for row in both:
        if row["method"] != OURS:
            own: Any = ours.get(tuple(row[key] for key in keys))
            known = own is not None and pd.notna(own["samples_per_s"]) and pd.notna(row["samples_per_s"])
            ratios.append(ratio_of(own, row) if known else None)  # type: ignore[arg-type]
    others["ratio"] = pd.Series(ratios, index=others.index, dtype="object")
    values = [None if one is None else one.value for one in ratios]
    others["speedup"] = pd.Series(values, index=others.index, dtype="Float64")
    return others[[*keys, "method", "speedup", "ratio"]].rename(columns={"method": "compared_with"})


def own_of(rows: pd.DataFrame) -> set[tuple[str, str]]:
    """(model, origin) of rows that are all of the paper's models on the paper's devices."""
    keys = [*zip(rows["model"], rows["origin"], strict=True)]
    foreign = {key for key, own in zip(keys, papers_own(rows), strict=True) if not own}
    return set(keys) - foreign


def against_paper(
    each: pd.DataFrame,
    by: list[str],
    figures: dict[str, str],
    own: Collection[tuple[str, str]] | None = None,
) -> pd.DataFrame:
    """Mean speedups per ``by`` and compared method, with what the paper prints.

    Args:
        each: what :func:`speedups` returns.
        by: columns of the groups, ``model`` among them.
        figures: model → the paper's figure.
        own: (model, origin) that may stand beside the paper's values; all where it is not given.

    Returns:
        ``by``, compared_with, figure, settings (how many went into the mean), mean_speedup,
        paper_mean_speedup, error_percent.
    """
    grouped = each.dropna(subset=["speedup"]).groupby([*by, "compared_with"], sort=False)["speedup"]
    means = grouped.agg(["mean", "size"]).reset_index()
    means = means.rename(columns={"mean": "mean_speedup", "size": "settings"})
    means["figure"] = means["model"].map(figures)
    paper = printed("speedups")
    paper["compared_with"] = paper["compared_with"].map(canonical_method)
    known = paper.set_index(["figure", "compared_with"])["mean_speedup_of_bitpipe"]
    wanted = means[["figure", "compared_with"]].itertuples(index=False, name=None)
    means["paper_mean_speedup"] = [known.get(key) for key in wanted]
    if own is not None:
        elsewhere = [key not in own for key in zip(means["model"], means["origin"], strict=True)]
        means.loc[elsewhere, "paper_mean_speedup"] = None
    means["error_percent"] = 100 * (means["mean_speedup"] / means["paper_mean_speedup"] - 1)
    return means


@dataclass(frozen=True, kw_only=True)
class Null:
    """What one constant per baseline makes of the paper's speedups: absolute errors in percent.

    Attributes:
        fitted: the constant is the mean over all figures, the one in question included.
        left_out: over all others.
    """

    fitted: pd.Series
    left_out: pd.Series


def null_errors(figures: pd.Series, compared_with: pd.Series) -> Null:
    """The errors of the null model in the paper's values for these figures and methods."""
    paper = printed("speedups")
    paper["compared_with"] = paper["compared_with"].map(canonical_method)
    every = paper.groupby("compared_with")["mean_speedup_of_bitpipe"]
    mean, size = every.transform("mean"), every.transform("size")
    value = paper["mean_speedup_of_bitpipe"]
    rest = ((mean * size - value) / (size - 1)).where(size > 1, value.mean())
    paper = paper.assign(fitted=100 * (mean / value - 1).abs(), left_out=100 * (rest / value - 1).abs())
    wanted = set(zip(figures, compared_with, strict=True))
    keys = zip(paper["figure"], paper["compared_with"], strict=True)
    asked = paper[[key in wanted for key in keys]]
    return Null(fitted=asked["fitted"], left_out=asked["left_out"])


def skilled(errors: pd.Series, null: Null) -> tuple[bool, str]:
    """Whether speedups are closer to the paper's than the null model's, and that in words."""
    errors = errors.dropna().astype(float).abs()
    skill = bool(errors.mean() < min(null.fitted.mean(), null.left_out.mean()))
    words = (
        f"mean error {errors.mean():.1f}%, worst {errors.max():.1f}%; one constant per baseline "
        f"{null.fitted.mean():.1f}%, worst {null.fitted.max():.1f}% (each figure by the others "
        f"{null.left_out.mean():.1f}%, {null.left_out.max():.1f}%)"
    )
    return skill, words + ("" if skill else ": no skill beyond that in their sizes")


def summary(means: pd.DataFrame, where: str) -> str:
    """One sentence on how far the means are from the paper's, and how far a constant per baseline is."""
    known = means.dropna(subset=["error_percent"])
    if known.empty:
        return f"{where}: no speedup could be compared with the paper's"
    _, words = skilled(known["error_percent"], null_errors(known["figure"], known["compared_with"]))
    return f"{where}: {len(known)} mean speedups against the paper's, nothing refitted: {words}"
