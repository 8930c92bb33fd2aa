"""Table 5: the best width, depth and micro-batch size of every method, found and printed."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.labels import MODELS, canonical_method, whose
from analysis.drawing.labels import method as look_of
from analysis.drawing.output import Rendered, Table
from analysis.load.paper import printed
from analysis.load.results import Results
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.words import counted

SETTING = ["width", "depth", "micro_batch_size"]
GROUP = ["origin", "reading", "model", "gpus", "method"]
READINGS = {"fixed_batch": "N = B̂/(B·W)", "n_is_d": "N = D"}
_GRID = [
    *GROUP,
    "cluster",
    *SETTING,
    "micro_batches",
    "global_batch",
    "samples_per_s",
    "bubble_ratio",
    "peak_memory_bytes",
    "status",
    "reason",
    "calibration",
    "calibrated",
    "cell",
]


@artefact("table5_search", title="Table 5: grid search over (W, D, B)")
def table5_search(results: Results) -> Rendered:
    """Every cell of the grid with its reason if it has no throughput, and the best of each method."""
    ours = results.experiment("table5_search").rename(columns={"ranks": "gpus"})
    grid = ours[_GRID].sort_values([*GROUP, *SETTING], ignore_index=True)
    best = choices(grid)
    theirs = best[best["same_as_paper"].notna()]
    lost = theirs["paper_choice_loses_percent"].dropna()
    loses = (
        f"{lost[lost > 0].mean():.1f}% on average, {lost.max():.1f}% at most" if lost.gt(0).any() else "0.0%"
    )
    notes = (
        f"{counted(len(grid), 'cell')}: "
        + ", ".join(f"{n} {s}" for s, n in grid["status"].value_counts().items()),
        f"the paper's choice is the best one found in {theirs['same_as_paper'].astype(bool).sum()} of "
        f"{len(theirs)} searches" + (f"; where it is not, it loses {loses}" if lost.gt(0).any() else ""),
        "the model's compute rate does not depend on B, so that a larger B gains only by fewer actions",
        *remarks(ours),
    )
    return Rendered(
        tables=(
            Table(
                name="table5_search",
                title="Table 5: best W·D·B, and samples/s",
                frame=grid,
                grid=_best_grid(best),
            ),
            Table(name="table5_search_best", title="Table 5: best choices (W·D·B)", frame=best),
        ),
        notes=notes,
    )


def choices(grid: pd.DataFrame) -> pd.DataFrame:
    """Per origin, reading, model, GPUs and method: the best setting, the paper's, and what it loses."""
    paper = printed("table5_best").rename(
        columns={"data_parallel": "width", "micro_batch": "micro_batch_size"}
    )
    paper["method"] = paper["method"].map(canonical_method)
    paper["model"] = paper["model"].str.replace("-", "_")
    rows: list[dict[str, Any]] = []
    for key, group in grid.groupby(GROUP, sort=False):
        _, _, model, gpus, method = key
        valid = group[group["status"].eq("ok") & group["samples_per_s"].notna()]
        if valid.empty:
            continue
        top = valid.sort_values("samples_per_s", kind="stable").iloc[-1]
        theirs = paper[(paper["model"] == model) & (paper["gpus"] == gpus) & (paper["method"] == method)]
        row: dict[str, Any] = dict(zip(GROUP, key, strict=True))
        row |= {name: int(top[name]) for name in (*SETTING, "micro_batches", "global_batch")}
        row["samples_per_s"] = float(top["samples_per_s"])
        row |= {name: top.get(name) for name in ("calibrated", "cluster")}
        if len(theirs):
            chosen = theirs.iloc[0]
            at = valid[(valid[SETTING] == chosen[SETTING].astype(int)).all(axis=1)]
            row |= {f"paper_{name}": int(chosen[name]) for name in SETTING}
            row["same_as_paper"] = all(int(chosen[name]) == row[name] for name in SETTING)
            if len(at):
                row["paper_choice_loses_percent"] = 100 * (
                    1 - float(at.iloc[0]["samples_per_s"]) / row["samples_per_s"]
                )
        rows.append(row)
    named = [*GROUP, *SETTING, "micro_batches", "global_batch", "samples_per_s", "calibrated", "cluster"]
    named += [*(f"paper_{name}" for name in SETTING), "same_as_paper", "paper_choice_loses_percent"]
    return pd.DataFrame(rows, columns=named)


def _best_grid(best: pd.DataFrame) -> Grid:
    blocks, sizes = [], sorted(map(int, best["gpus"].unique()))
    for (_, reading, model), group in best.groupby(GROUP[:3], sort=False):
        lines = []
        for method, rows in group.groupby("method", sort=False):
            cells = []
            for gpus in sizes:
                found = rows[rows["gpus"] == gpus]
                if found.empty:
                    cells.append("–")
                    continue
                row = found.iloc[0]
                theirs = f" (paper {_triple(row, 'paper_')})" if pd.notna(row["paper_depth"]) else ""
                mark = "" if row["same_as_paper"] is True else theirs
                cells.append(f"{_triple(row, '')}{mark} {row['samples_per_s']:.1f}/s")
            lines.append(entries([look_of(str(method)).name, *cells]))
        title = f"{MODELS.get(str(model), model)}, {READINGS.get(str(reading), reading)}, {whose(group)}"
        blocks.append(Block(title=title, rows=tuple(lines)))
    header = ("W·D·B", *(f"{gpus} GPUs" for gpus in sizes))
    return Grid(header=header, blocks=tuple(blocks), text_columns=len(header))


def _triple(row: pd.Series, prefix: str) -> str:
    return "·".join(str(int(row[f"{prefix}{name}"])) for name in SETTING)
