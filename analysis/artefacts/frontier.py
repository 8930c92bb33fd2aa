"""Makespan against peak activations for every method: what memory buys, and the searched order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.labels import METHODS, Look
from analysis.drawing.output import Picture, Rendered, Table
from analysis.drawing.style import PAGE, figure, line, style
from analysis.load.results import NoResults, Results
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.schedule import ScheduleSpec, placement_of
from bitpipe.schedule.bounds import lower_bound

ID = "frontier"
TITLE = "Makespan against peak activations"
SEARCHED = "bitpipe.schedule.search.methods:bitpipe_searched"
LOOKS = {
    **METHODS,
    "bitpipe": Look("BitPipe with a cap", "#1f3b7d", "", "*", "-"),
    SEARCHED: Look("BitPipe, searched order", "#000000", "", ".", (0, (1, 1))),
}
POINT = ["split_backward", "depth"]


@artefact(ID, title=TITLE)
def frontier(results: Results) -> Rendered:
    """Every method's makespan over its peak activations, and which points nothing else dominates."""
    ours = results.experiment(ID)
    frame = tidy(ours, results.loaded.devices)
    if frame.empty:
        raise NoResults(results.root, ID)
    return Rendered(
        tables=(Table(name=ID, title=TITLE, frame=frame, grid=layout(frame)),),
        pictures=(_picture(frame),),
        notes=remarks(ours),
    )


def tidy(rows: pd.DataFrame, devices: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: peak activations (Ma, most of all devices), makespan, ``best``.

    A device is busy for 3N stage forwards, so the makespan is 3N / (1 − bubble ratio). ``lower_bound_units``
    is what no order on the method's placement can beat with as much memory.
    ``best`` marks a point that no other of the same depth and kind of backward dominates: none has
    less memory and is as fast, or as much memory and is faster.
    """
    rows = rows[rows["status"].eq("ok") & rows["bubble_ratio"].notna()]
    if rows.empty:
        return pd.DataFrame()
    peaks = devices.groupby(["cell", "attempt"])["peak_activation_ma"].max()
    found = [
        {
            "split_backward": bool(row["split_backward"]),
            "depth": int(row["depth"]),
            "micro_batches": int(row["micro_batches"]),
            "method": str(row["method"]),
            "peak_activation_ma": float(peaks[row["cell"], row["attempt"]]),
            "makespan_units": round(3 * int(row["micro_batches"]) / (1 - float(row["bubble_ratio"])), 6),
            "lower_bound_units": _bound(row, float(peaks[row["cell"], row["attempt"]])),
            "origin": str(row["origin"]),
            "cell": str(row["cell"]),
        }
        for row in rows.to_dict("records")
    ]
    frame = pd.DataFrame(found)
    frame["best"] = False
    for _, group in frame.groupby(POINT):
        frame.loc[group.index, "best"] = _undominated(group)
    by = [*POINT, "peak_activation_ma", "makespan_units", "method"]
    return frame.sort_values(by, ignore_index=True)


def _bound(row: Mapping[Any, Any], peak: float) -> float:
    method = "bitpipe" if row["method"] == SEARCHED else str(row["method"])
    depth, count = int(row["depth"]), int(row["micro_batches"])
    placement = placement_of(ScheduleSpec(method=method, depth=depth, micro_batches=count))
    cap = round(peak * placement.chunks)
    return lower_bound(placement, count, cap=cap, split_backward=bool(row["split_backward"]))


def _undominated(group: pd.DataFrame) -> list[bool]:
    points = list(zip(group["peak_activation_ma"], group["makespan_units"], strict=True))
    return [
        not any(p <= peak and m <= span and (p, m) != (peak, span) for p, m in points)
        for peak, span in points
    ]


def lower_line(rows: pd.DataFrame) -> pd.DataFrame:
    """A method's own frontier: its makespans that more memory improves, by memory."""
    rows = rows.sort_values(["peak_activation_ma", "makespan_units"])
    best = rows["makespan_units"].cummin()
    return rows[rows["makespan_units"].eq(best) & ~best.duplicated()]


def layout(frame: pd.DataFrame) -> Grid:
    """The points that nothing dominates: a block per depth and kind of backward."""
    blocks = []
    for (split, depth), rows in frame.groupby(POINT):
        count = rows["micro_batches"].iloc[0]
        lines = []
        best = rows[rows["best"]]
        for (peak, span), ties in best.groupby(["peak_activation_ma", "makespan_units"]):
            bound = ties["lower_bound_units"].min()
            names = ", ".join(LOOKS[name].name if name in LOOKS else name for name in ties["method"].unique())
            lines.append(entries([f"{peak:g}", f"{span:g}", f"{bound:g}", names]))
        title = f"D={depth}, N={count}, {_backward(bool(split))} ({rows['origin'].iloc[0]})"
        blocks.append(Block(title=title, rows=tuple(lines)))
    notes = (
        "Peak: the most activations that a device holds, in those of one micro-batch on one stage (Ma). "
        "Makespan in forwards of 1/D of the model; bound: no order of that placement and peak is faster.",
        "Only points that no other has beaten in memory and time; all cells are in the CSV.",
    )
    header = ("peak Ma", "makespan", "bound", "methods")
    return Grid(header=header, blocks=tuple(blocks), notes=notes, text_columns=4)


def _backward(split: bool) -> str:
    return "split backward" if split else "monolithic backward"


def _picture(frame: pd.DataFrame) -> Picture:
    depths = sorted(frame["depth"].unique())
    with style():
        canvas = figure(PAGE, 4.6)
        panels = canvas.subplots(2, len(depths), squeeze=False)
        handles: dict[str, Any] = {}
        for row, split in enumerate((False, True)):
            for column, depth in enumerate(depths):
                axes = panels[row, column]
                part = frame[frame["split_backward"].eq(split) & frame["depth"].eq(depth)]
                if part.empty:  # not all of the grid has run
                    axes.set_visible(False)
                    continue
                for name, look in LOOKS.items():
                    points = lower_line(part[part["method"] == name])
                    if not points.empty:
                        axes.plot(points["peak_activation_ma"], points["makespan_units"], **line(look))
                axes.set_yscale("log")
                ticks = _ticks(part["makespan_units"])
                axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
                axes.set_yticks([], minor=True)
                axes.set_title(f"D={depth}, N={2 * depth}, {_backward(split)}", loc="left")
                axes.grid(axis="y")
                if row:
                    axes.set_xlabel("peak activations (Ma)")
                if not column:
                    axes.set_ylabel("makespan (forwards of 1/D of the model)")
                drawn, names = axes.get_legend_handles_labels()
                handles |= dict(zip(names, drawn, strict=True))
        canvas.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=4)
    return Picture(
        name=ID,
        title=TITLE,
        figure=canvas,
        alt="Makespan falls as more activations may be held; the searched order is lowest at small caps.",
    )


def _ticks(values: pd.Series) -> list[float]:
    """Four even steps of a logarithmic axis, rounded."""
    low, high = float(values.min()), float(values.max())
    return sorted({float(f"{low * (high / low) ** (step / 4):.2g}") for step in range(5)})
