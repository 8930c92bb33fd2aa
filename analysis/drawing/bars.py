"""Grouped bars of throughput: one panel per block, one group per point, one bar per method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.drawing.labels import Look
from analysis.drawing.labels import method as look_of
from analysis.drawing.style import PAGE, bar, figure, style


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One axes: ``rows`` clustered by ``point``, one bar per series in each.

    Panels of equal, non-empty ``group`` share their y range.
    """

    title: str
    rows: pd.DataFrame
    point: str
    group: str = ""


def offsets(count: int, width: float) -> list[float]:
    """Where the bars of a group lie around its centre."""
    return [(place - (count - 1) / 2) * width for place in range(count)]


def grouped_bars(
    panels: Sequence[Panel],
    looks: dict[str, Look],
    *,
    series: str,
    value: str,
    ylabel: str,
    xlabel: str,
    name: Callable[[object], str] = str,
    columns: int = 2,
) -> Figure:
    """Bars of ``value``; a cell without one shows its status instead. Call it outside ``style()``.

    A series that ``looks`` does not know is drawn last, under its own name.
    """
    for key in sorted({str(key) for panel in panels for key in panel.rows[series].dropna()} - set(looks)):
        looks = {**looks, key: look_of(key)}
    rows_of_panels = -(-len(panels) // columns)
    with style():
        canvas = figure(PAGE, 0.5 + 2.1 * rows_of_panels)
        grid = canvas.subplots(rows_of_panels, min(columns, len(panels)), squeeze=False)
        present = [key for key in looks if any(key in set(panel.rows[series]) for panel in panels)]
        width = 0.8 / max(1, len(present))
        first: dict[str, Axes] = {}
        for place, panel in enumerate(panels):
            axes = grid[divmod(place, columns)]
            if panel.group and first.setdefault(panel.group, axes) is not axes:
                axes.sharey(first[panel.group])
            points = sorted(panel.rows[panel.point].dropna().unique())
            for offset, key in zip(offsets(len(present), width), present, strict=True):
                for row in panel.rows[panel.rows[series] == key].to_dict("records"):
                    if pd.isna(row[panel.point]):
                        continue
                    x = points.index(row[panel.point]) + offset
                    if row["status"] != "ok" or pd.isna(row[value]):
                        axes.text(
                            x, 0, f" {row['status']}", rotation=90, ha="center", va="bottom", fontsize=6
                        )
                        continue
                    axes.bar(x, float(row[value]), width, **(bar(looks[key]) | {"label": None}))
            axes.set_title(panel.title, loc="left")
            axes.set_xticks(range(len(points)), [name(point) for point in points])
            axes.set_xlabel(xlabel)
            axes.set_ylabel(ylabel)
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        for place in range(len(panels), grid.size):
            grid[divmod(place, columns)].set_axis_off()
        handles = [
            Patch(
                facecolor=looks[key].colour, hatch=looks[key].hatch, edgecolor="black", label=looks[key].name
            )
            for key in present
        ]
        canvas.legend(handles=handles, loc="outside upper left", ncols=max(1, len(handles)))
    return canvas
