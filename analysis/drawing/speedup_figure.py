"""Mean speedups of BitPipe as bars: ours beside the paper's."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.drawing.labels import ORIGINS, Look, in_order, method, model
from analysis.drawing.output import Picture
from analysis.drawing.style import PAGE, bar, figure, style
from bitpipe.origin import Origin

PAPER = ORIGINS[Origin.PAPER]


def speedup_picture(
    means: pd.DataFrame, name: str, title: str, readings: dict[str, str]
) -> tuple[Picture, ...]:
    """One panel per model, one group per method compared with: the paper's bar, then ours.

    Args:
        means: what :func:`analysis.speedups.against_paper` returns; ``reading`` may be a column.
        name: of the file.
        title: of the picture.
        readings: what the readings of N are called; each has a bar of its own.

    Returns:
        One picture; none where no pair of methods gave a speedup.
    """
    models = sorted(means["model"].unique())
    if not models:
        return ()
    with style():
        canvas = figure(PAGE, 2.4)
        panels = canvas.subplots(1, len(models), sharey=True, squeeze=False)[0]
        handles = [_patch(PAPER, PAPER.name)]
        for axes, one in zip(panels, models, strict=True):
            rows = means[means["model"] == one]
            series = list(_series(rows, readings).items())
            _panel(axes, rows, [(look, group) for (_, look), group in series])
            printed_in = [
                str(name).replace("fig", " (Fig. ") + ")" for name in rows["figure"].dropna().unique()
            ]
            axes.set_title(model(str(one)) + "".join(printed_in[:1]), loc="left")
            if len(handles) == 1:
                handles += [_patch(look, label) for (label, look), _ in series]
        panels[0].set_ylabel("BitPipe's mean speedup\nover the other method (×)")
        canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    picture = Picture(
        name=name,
        title=title,
        figure=canvas,
        alt="Bars of BitPipe's mean speedup over each other method, the paper's beside ours.",
    )
    return (picture,)


def _series(means: pd.DataFrame, readings: dict[str, str]) -> dict[tuple[str, Look], pd.DataFrame]:
    """Our bars: one per origin and reading; readings of one origin differ in how dense they are."""
    found = {}
    for origin, rows in means.groupby("origin", sort=False):
        look = ORIGINS[Origin(str(origin))]
        if "reading" not in rows:
            found[look.name, look] = rows
            continue
        for place, (reading, some) in enumerate(rows.groupby("reading")):
            denser = Look(look.name, look.colour, look.hatch * (1 + place), look.marker)
            found[f"{look.name}, {readings[str(reading)]}", denser] = some
    return found


def _panel(axes: Axes, rows: pd.DataFrame, ours: list[tuple[Look, pd.DataFrame]]) -> None:
    methods = in_order(rows["compared_with"])
    printed = rows.drop_duplicates("compared_with").set_index("compared_with")["paper_mean_speedup"]
    columns: list[tuple[Look, Any]] = [(PAPER, printed)]
    columns += [(look, one.set_index("compared_with")["mean_speedup"]) for look, one in ours]
    width = 0.8 / len(columns)
    for place, (look, values) in enumerate(columns):
        for x, name in enumerate(methods):
            value = values.get(name)
            if value is None or pd.isna(value):
                continue
            at = x + (place - (len(columns) - 1) / 2) * width
            axes.bar(at, float(value) - 1, width, 1.0, **(bar(look) | {"label": None}))
            axes.annotate(
                f"{value:.2f}", (at, value), (0, 2), textcoords="offset points", ha="center", fontsize=6
            )
    axes.axhline(1, color="black", lw=0.8)
    axes.set_xticks(range(len(methods)), [method(name).name for name in methods])
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _patch(look: Look, label: str) -> Patch:
    return Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="black", label=label)
