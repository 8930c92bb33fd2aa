"""Fig. 11: throughput of BitPipe over the pipeline depth and the micro-batch size."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.drawing.labels import whose
from analysis.drawing.output import Picture, Rendered, Table
from analysis.drawing.style import PAGE, figure, style
from analysis.load.results import Results
from analysis.registry import artefact
from analysis.remarks import remarks

_MARKERS = ("o", "^", "D", "s", "v")
_LINES = ("-", "--", "-.", ":", (0, (3, 1)))
_GREYS = ("#1f3b7d", "#3f9270", "#d07a8a", "#d9a400", "#7fb8e0")


@artefact("fig11_hyperparameters", title="Fig. 11: depth and micro-batch size")
def fig11_hyperparameters(results: Results) -> Rendered:
    """Two panels: over D with a line per B, over B with a line per D."""
    ours = results.experiment("fig11_hyperparameters")
    keys = ["origin", "cluster", "depth", "width", "micro_batch_size", "micro_batches", "global_batch"]
    values = ["samples_per_s", "bubble_ratio", "peak_memory_bytes", "status", "reason", "calibrated", "cell"]
    frame = ours[[*keys, *values]].sort_values(keys, ignore_index=True)
    pictures = []
    for origin, rows in frame.groupby("origin", sort=False):
        name = "fig11_hyperparameters"
        if frame["origin"].nunique() > 1:
            name += f"_{origin}"
        pictures.append(_picture(rows, whose(rows), name))
    best = frame.dropna(subset=["samples_per_s"])
    notes = []
    for _, rows in best.groupby("origin", sort=False):
        top = rows.sort_values("samples_per_s").iloc[-1]
        notes.append(
            f"{whose(rows)}: best at D={top['depth']} W={top['width']} B={top['micro_batch_size']} "
            f"with {top['samples_per_s']:.1f} samples/s"
        )
    return Rendered(
        tables=(Table(name="fig11_hyperparameters", title="Fig. 11: throughput over D and B", frame=frame),),
        pictures=tuple(pictures),
        notes=(*notes, *remarks(ours)),
    )


def _picture(rows: pd.DataFrame, origin: str, name: str) -> Picture:
    with style():
        canvas = figure(PAGE, 2.6)
        over_depth, over_size = canvas.subplots(1, 2)
        _lines(over_depth, rows, "depth", "micro_batch_size", "pipeline depth D (W = P/D)", "B")
        _lines(over_size, rows, "micro_batch_size", "depth", "micro-batch size B (samples)", "D")
        batch = int(rows["global_batch"].max())
        over_depth.set_title(f"B̂ = {batch}, {origin}", loc="left")
        over_size.set_title(f"B̂ = {batch}, {origin}", loc="left")
    return Picture(
        name=name,
        title="Fig. 11: throughput of BitPipe over depth and micro-batch size",
        figure=canvas,
        alt="Lines of samples per second over the depth, one per micro-batch size, and the reverse.",
    )


def _lines(axes: Axes, rows: pd.DataFrame, x: str, series: str, xlabel: str, letter: str) -> None:
    points = sorted(rows[x].dropna().unique())
    for place, value in enumerate(sorted(rows[series].dropna().unique())):
        line = rows[(rows[series] == value) & rows["samples_per_s"].notna()].sort_values(x)
        axes.plot(
            [points.index(one) for one in line[x]],
            line["samples_per_s"].astype(float),
            color=_GREYS[place % 5],
            marker=_MARKERS[place % 5],
            linestyle=_LINES[place % 5],
            markeredgecolor="black",
            markeredgewidth=0.5,
            label=f"{letter}={value}",
        )
    axes.set_xticks(range(len(points)), [str(point) for point in points])
    axes.set_xlabel(xlabel)
    axes.set_ylabel("throughput (samples/s)")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.1), ncols=5, borderaxespad=0)
