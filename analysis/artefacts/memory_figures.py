"""Fig. 8 and 10: peak memory of every device, as distributions."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.drawing.bars import offsets
from analysis.drawing.labels import MODELS, in_order, whose
from analysis.drawing.labels import method as look_of
from analysis.drawing.output import Picture, Rendered, Table
from analysis.drawing.style import PAGE, bar, figure, style
from analysis.load.results import Results
from analysis.memory import GIB, balance
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.simulate.memory import verdict

CAPACITY_GIB = 80.0  # of the paper's devices (section 2.1.1)


@artefact("fig8_memory_pp", title="Fig. 8: peak memory under pipeline parallelism")
def fig8_memory_pp(results: Results) -> Rendered:
    """Distributions over 8 devices for four methods and three mini-batches, both models."""
    return _draw(results, "fig8_memory_pp", "global_batch", "B̂ = {} samples", [])


@artefact("fig10_memory_dp", title="Fig. 10: peak memory with data parallelism")
def fig10_memory_dp(results: Results) -> Rendered:
    """Distributions over 32 devices at the paper's settings, both readings of N."""
    return _draw(results, "fig10_memory_dp", "reading", "{}", ["reading"])


def _draw(results: Results, id: str, point: str, label: str, more: list[str]) -> Rendered:
    ours = results.experiment(id)
    keys = [*more, "model", "origin", "cluster", "global_batch", "method", "width", "depth"]
    keys += ["micro_batch_size", "micro_batches"]
    memory = balance(ours, results.loaded.devices, keys=keys)
    table = memory.summary.copy()
    table["verdict_80_gib"] = [verdict(peak, CAPACITY_GIB).value for peak in table["max_gib"]]
    names = {"fixed_batch": "N = B̂/(B·W)", "n_is_d": "N = D"}
    pictures = []
    for origin, rows in memory.devices.groupby("origin", sort=False):
        name = id if memory.devices["origin"].nunique() == 1 else f"{id}_{origin}"
        pictures.append(
            Picture(
                name=name,
                title=f"Peak memory per device, {origin}",
                figure=_figure(rows, point, label, names),
                alt="Range, devices and mean of the peak memory in GiB for every method.",
            )
        )
    return Rendered(
        tables=(Table(name=id, title="Peak memory over devices (GiB)", frame=table),),
        pictures=tuple(pictures),
        notes=remarks(ours),
    )


def _figure(rows: pd.DataFrame, point: str, label: str, names: dict[str, str]) -> Figure:
    models = sorted(rows["model"].unique())
    present = in_order(rows["method"])
    with style():
        canvas = figure(PAGE, 2.8)
        panels = canvas.subplots(1, len(models), squeeze=False)[0]
        for axes, model in zip(panels, models, strict=True):
            mine = rows[rows["model"] == model]
            _distributions(axes, mine, point, label, names, present)
            axes.set_title(f"{MODELS.get(model, model)}, {whose(mine)}", loc="left")
        handles: list[Any] = [
            Patch(
                facecolor=look_of(key).colour,
                hatch=look_of(key).hatch,
                edgecolor="black",
                label=look_of(key).name,
            )
            for key in present
        ]
        handles.append(Line2D([], [], color="white", marker="o", mec="black", ms=3, label="one device"))
        handles.append(Line2D([], [], color="black", marker="_", lw=0, ms=8, label="mean"))
        canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return canvas


def _distributions(
    axes: Axes, rows: pd.DataFrame, point: str, label: str, names: dict[str, str], present: list[str]
) -> None:
    points = sorted(rows[point].unique())
    # Small models are drawn in MiB; then the capacity of the paper's devices means nothing.
    paper_scale = rows["peak_memory_bytes"].max() >= GIB
    scale, unit = (GIB, "GiB") if paper_scale else (2**20, "MiB")
    width = 0.8 / max(1, len(present))
    for offset, key in zip(offsets(len(present), width), present, strict=True):
        for place, value in enumerate(points):
            held = rows[(rows["method"] == key) & (rows[point] == value)]["peak_memory_bytes"] / scale
            if held.empty:
                continue
            x = place + offset
            look = bar(look_of(key)) | {"label": None}
            axes.bar(x, held.max() - held.min(), width * 0.8, held.min(), **look)
            axes.plot([x] * len(held), held, "o", color="white", mec="black", mew=0.4, ms=2)
            axes.plot([x], [held.mean()], "_", color="black", ms=7, mew=1.2)
    if paper_scale:
        axes.axhline(CAPACITY_GIB, color="black", lw=0.8, ls="--")
        axes.text(len(points) - 0.5, CAPACITY_GIB + 0.7, "80 GiB", ha="right", va="bottom", fontsize=6)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(points)), [label.format(names.get(str(value), value)) for value in points])
    axes.set_ylabel(f"peak memory ({unit})")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
