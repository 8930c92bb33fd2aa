"""Table 6 drawn: throughput beside the paper's, and memory over devices."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.drawing.labels import ORIGINS, VARIANTS, model, whose
from analysis.drawing.output import Picture
from analysis.drawing.style import PAGE, bar, figure, style
from analysis.memory import GIB, Balance
from bitpipe.origin import Origin

ROW = ["depth", "micro_batches"]


def throughput_picture(frame: pd.DataFrame) -> Iterator[Picture]:
    """Above samples/s where runs are of the paper's quantity, below every variant relative to full.

    The panels of samples/s are left out where no run may be compared with the paper's. Each origin and model
    has a row of ratios of its own, with the paper's beside it: the noise of one would hide the other's.
    """
    paper = frame["origin"] == Origin.PAPER.value
    ran = frame[~paper & frame["status"].ne("missing")]
    points = list(ran[ROW].drop_duplicates().sort_values(ROW).itertuples(index=False, name=None))
    comparable = frame[paper | frame["paper_samples_per_s"].notna()]
    runs = comparable[comparable["origin"] != Origin.PAPER.value]
    beside = set(runs[ROW].itertuples(index=False, name=None))
    bars = 1 if beside else 0
    blocks = [
        rows
        for _, rows in ran[ran["ratio_to_full"].notna()].groupby(["origin", "model", "cluster"], sort=False)
    ]
    heights = [3] * bars + [2] * len(blocks)
    if not heights:
        return
    calibrated = not ran["calibrated"].eq(False).any()
    with style():
        canvas = figure(PAGE, 1.6 + 0.5 * sum(heights))
        panels = canvas.subplots(
            len(heights), len(points), sharey="row", squeeze=False, height_ratios=heights
        )
        for column, point in enumerate(points):
            title = f"D={point[0]}, N={point[1]}" + ("" if calibrated else _uncalibrated(_at(ran, point)))
            top = 0 if point in beside or not bars else 1
            if point in beside:
                _bars(panels[0, column], _at(comparable, point))
            elif bars:
                panels[0, column].set_axis_off()
            for axes, block in zip(panels[bars:, column], blocks, strict=True):
                _ratios(axes, _at(pd.concat([frame[paper], block]), point))
            panels[min(top, len(heights) - 1), column].set_title(title)
            for axes in panels[:-1, column]:
                axes.set_xticks([])
            names = [look.name for look in VARIANTS.values()]
            panels[-1, column].set_xticks(range(len(VARIANTS)), names, rotation=60, ha="right")
        first = [point in beside for point in points].index(True) if bars else 0
        if bars:
            panels[0, first].set_ylabel("throughput (samples/s)")
            panels[0, first].tick_params(labelleft=True)
        for axes, block in zip(panels[bars:, 0], blocks, strict=True):
            axes.set_ylabel(f"{_whose(block)}\nagainst full (%)")
        _legend(canvas, frame, set(comparable["origin"]) if bars else set())
    yield Picture(
        name="table6_ablation",
        title="Table 6: throughput without one mechanism at a time",
        figure=canvas,
        alt="Bars of samples per second for each variant, depth and number of micro-batches, ours beside "
        "the paper's, where a run may be compared with it; below, for each origin, every variant's "
        "throughput relative to the full method, in percent.",
    )


def _at(rows: pd.DataFrame, point: tuple[int, int]) -> pd.DataFrame:
    return rows[(rows[ROW[0]] == point[0]) & (rows[ROW[1]] == point[1])]


def _uncalibrated(rows: pd.DataFrame) -> str:
    """Whose numbers are uncalibrated, in the title's second and third line; empty lines keep titles level."""
    names = sorted(set(rows.loc[rows["calibrated"].eq(False), "origin"]))
    return f"\n{', '.join(names)}:\nuncalibrated" if names else "\n\n"


def _whose(block: pd.DataFrame) -> str:
    """A block's origin and model; its cluster too, unless it only scales the links between CPUs."""
    first = block.iloc[0]
    about = model(str(first["model"]))
    if first["origin"] in (Origin.SIMULATED, Origin.MEASURED):
        about += f" on {first['cluster']}"
    return "\n".join([str(first["origin"]), *wrap(about, 18)])


def _legend(canvas: Figure, frame: pd.DataFrame, in_bars: set[str]) -> None:
    looks = [(name, look) for name, look in ORIGINS.items() if name.value in set(frame["origin"])]
    handles: list[Any] = []
    for name, look in looks:
        dot = Line2D([], [], color=look.colour, marker=look.marker, linestyle="", mec="black", ms=6)
        patch = Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="black")
        handles.append((patch, dot) if name.value in in_bars else dot)
    canvas.legend(
        handles,
        [look.name for _, look in looks],
        loc="outside upper left",
        ncols=len(looks),
        handlelength=4 if in_bars else 2,
        handleheight=1.2,
        handler_map={tuple: HandlerTuple(None, 0.6)},
    )


def _by_variant(rows: pd.DataFrame, name: Origin) -> dict[str, dict[str, Any]]:
    records: list[Any] = rows[rows["origin"] == name.value].to_dict("records")
    return {row["variant"]: row for row in records}


def _offsets(count: int, width: float) -> list[float]:
    return [(place - (count - 1) / 2) * width for place in range(count)]


def _bars(axes: Axes, rows: pd.DataFrame) -> None:
    origins = [name for name in ORIGINS if name.value in set(rows["origin"])]
    width = 0.8 / max(len(origins), 1)
    for offset, name in zip(_offsets(len(origins), width), origins, strict=True):
        look = ORIGINS[name]
        series = _by_variant(rows, name)
        for x, variant in enumerate(VARIANTS):
            row = series.get(variant, {"status": "missing"})
            if row["status"] != "ok":
                axes.text(x + offset, 0.5, row["status"], rotation=90, ha="center", va="bottom", fontsize=6)
                continue
            value = row["samples_per_s"]
            axes.bar(x + offset, value, width, color=look.colour, hatch=look.hatch, edgecolor="black")
            if pd.notna(row["samples_per_s_low"]):
                ends = [[value - row["samples_per_s_low"]], [row["samples_per_s_high"] - value]]
                axes.errorbar(x + offset, value, ends, color="black", capsize=2, lw=0.8)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _ratios(axes: Axes, rows: pd.DataFrame) -> None:
    axes.axhline(0, color="black", lw=0.6)
    origins = [name for name in ORIGINS if name.value in set(rows["origin"])]
    for offset, name in zip(_offsets(len(origins), 0.25), origins, strict=True):
        look = ORIGINS[name]
        series = _by_variant(rows[rows["ratio_to_full"].notna()], name)
        for x, variant in enumerate(VARIANTS):
            if variant not in series:
                continue
            value, low, high = _relative(series[variant])
            if low is not None and high is not None:
                axes.plot([x + offset] * 2, [low, high], "-", color="black", lw=0.8)
            axes.plot(x + offset, value, color=look.colour, marker=look.marker, ms=4.5, mec="black", mew=0.5)
    axes.set_xlim(-0.6, len(VARIANTS) - 0.4)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _relative(row: dict[str, Any]) -> tuple[float, float | None, float | None]:
    """Percent above full, and its interval; full itself has none."""
    value = 100 * (row["ratio_to_full"] - 1)
    low, high = row["ratio_to_full_low"], row["ratio_to_full_high"]
    return (value, None, None) if pd.isna(low) else (value, 100 * (low - 1), 100 * (high - 1))


def memory_picture(memory: Balance) -> Iterator[Picture]:
    """Peak memory of every device, a panel per origin and model: range, mean, every device as a point."""
    by = ["origin", "model", "cluster"]
    known = [] if memory.devices.empty else list(memory.devices.groupby(by, sort=False))
    if not known:
        return
    with style():
        canvas = figure(PAGE, 0.5 + 1.9 * len(known))
        panels = canvas.subplots(len(known), 1, squeeze=False)[:, 0]
        every = memory.devices[ROW].drop_duplicates().sort_values(ROW)
        points = list(every.itertuples(index=False, name=None))
        for axes, ((_, trained, _), rows) in zip(panels, known, strict=True):
            _devices(axes, rows, points, f"{whose(rows)}, {model(str(trained))}")
        handles: list[Any] = [
            Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="black", label=look.name)
            for look in VARIANTS.values()
        ]
        handles.append(Line2D([], [], color="white", marker="o", mec="black", ms=3, label="one device"))
        handles.append(Line2D([], [], color="black", marker="_", lw=0, ms=8, label="mean"))
        canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    yield Picture(
        name="table6_ablation_memory",
        title="Table 6's runs: peak memory of every device",
        figure=canvas,
        alt="Distribution over devices of peak memory for each variant, depth and number of micro-batches.",
    )


def _devices(axes: Axes, rows: pd.DataFrame, points: list[Any], title: str) -> None:
    scale, unit = (GIB, "GiB") if rows["peak_memory_bytes"].max() >= GIB else (2**20, "MiB")
    width = 0.8 / len(VARIANTS)
    for offset, (name, look) in zip(_offsets(len(VARIANTS), width), VARIANTS.items(), strict=True):
        series = rows[rows["variant"] == name]
        values = series["peak_memory_bytes"].astype(float) / scale
        at = [points.index(key) + offset for key in series[ROW].itertuples(index=False, name=None)]
        ends = values.groupby(at).agg(["min", "max", "mean"])
        axes.bar(ends.index, ends["max"] - ends["min"], width * 0.8, ends["min"], **bar(look))
        axes.plot(at, values, "o", color="white", mec="black", mew=0.4, ms=2)
        axes.plot(ends.index, ends["mean"], "_", color="black", ms=width * 50, mew=1.2)
    axes.set_xticks(range(len(points)), [f"D={depth}, N={batches}" for depth, batches in points])
    peaks = rows["peak_memory_bytes"].astype(float) / scale
    low, high = peaks.min(), peaks.max()
    # From 0 a small spread over devices would be a sliver.
    near = low > high / 3
    bottom = low - 0.15 * (high - low) if near and high > low else 0
    axes.set_ylabel(f"peak memory ({unit})" + ("\naxis not from 0" if bottom else ""))
    axes.set_title(title, loc="left")
    axes.set_ylim(bottom, high + 0.08 * (high - bottom))
    axes.set_xlim(-0.6, len(points) - 0.4)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
