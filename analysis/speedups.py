"""BitPipe's speedups over the other methods, and the paper's twelve means beside them."""

from __future__ import annotations

import pandas as pd

from analysis.drawing.labels import canonical_method
from analysis.load.paper import printed

OURS = "bitpipe"


def speedups(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row per cell of another method: BitPipe's throughput over its own.

    Cells are paired on ``keys`` (which must include what the paper held equal); a pair lacks a
    ``speedup`` where either has no throughput.
    """
    ours = rows[rows["method"] == OURS].set_index(keys)["samples_per_s"]
    others = rows[rows["method"] != OURS].copy()
    paired = pd.Series([ours.get(key) for key in others[keys].itertuples(index=False, name=None)])
    paired.index = others.index
    others["speedup"] = paired.astype("Float64") / others["samples_per_s"].astype("Float64")
    return others[[*keys, "method", "speedup"]].rename(columns={"method": "compared_with"})


def against_paper(each: pd.DataFrame, by: list[str], figures: dict[str, str]) -> pd.DataFrame:
    """Mean speedups per ``by`` and compared method, with what the paper prints.

    Args:
        each: what :func:`speedups` returns.
        by: columns of the groups, ``model`` among them.
        figures: model → the paper's figure.

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
    means["error_percent"] = 100 * (means["mean_speedup"] / means["paper_mean_speedup"] - 1)
    return means


def summary(means: pd.DataFrame, where: str) -> str:
    """One sentence on how far the means are from the paper's."""
    errors = means["error_percent"].dropna().abs()
    if errors.empty:
        return f"{where}: no speedup could be compared with the paper's"
    return (
        f"{where}: {len(errors)} mean speedups, mean error {errors.mean():.1f}%, worst {errors.max():.1f}% "
        "against the paper's, nothing refitted"
    )
