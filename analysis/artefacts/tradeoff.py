"""Section 2.2.3: up to which share of a device's memory the second copy of the weights pays (C24)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.drawing.labels import method as look_of
from analysis.drawing.labels import whose
from analysis.drawing.output import Picture, Rendered, Table
from analysis.drawing.style import PAGE, figure, line, style
from analysis.load.results import Results
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.models import arithmetic
from bitpipe.models.config import ModelConfig
from bitpipe.models.precision import PRECISIONS

OURS = "bitpipe"


@artefact("tradeoff_memory_throughput", title="Section 2.2.3: memory against throughput")
def tradeoff_memory_throughput(results: Results) -> Rendered:
    """Best throughput of every method over the share Mθ/memory, and where BitPipe stops to win."""
    ours = results.experiment("tradeoff_memory_throughput")
    ours["stage_share"] = list(map(stage_share, ours.to_dict("records")))
    cells = ours[
        [
            "origin",
            "cluster",
            "method",
            "hidden",
            "stage_share",
            "micro_batch_size",
            "micro_batches",
            "samples_per_s",
            "peak_memory_bytes",
            "status",
            "reason",
            "cell",
        ]
    ].sort_values(["origin", "hidden", "method", "micro_batch_size"], ignore_index=True)
    best = best_of(cells)
    ends = pd.DataFrame([break_even(str(origin), rows) for origin, rows in best.groupby("origin")])
    notes = tuple(
        f"{row['origin']}: the second copy pays up to Mθ/memory = {row['break_even_share']:.3f} "
        f"and no longer fits beyond {row['last_fitting_share']:.3f} (Mθ: weights, gradients and optimizer "
        "state of one copy)"
        for row in ends.to_dict("records")
    )
    pictures = []
    for origin, rows in best.groupby("origin", sort=False):
        name = "tradeoff_memory_throughput"
        if best["origin"].nunique() > 1:
            name += f"_{origin}"
        end = ends[ends["origin"] == origin].iloc[0]
        pictures.append(_picture(rows, float(end["break_even_share"]), whose(rows), name))
    return Rendered(
        tables=(
            Table(name="tradeoff_memory_throughput", title="Section 2.2.3: all cells", frame=cells),
            Table(
                name="tradeoff_memory_throughput_best", title="Best micro-batch size per method", frame=best
            ),
            Table(name="tradeoff_memory_throughput_break_even", title="Break-even", frame=ends),
        ),
        pictures=tuple(pictures),
        notes=(*notes, *remarks(ours)),
    )


def stage_share(row: dict[Any, Any]) -> float:
    """Bytes that one copy of a middle stage (1/D of the layers) occupies, over the device's memory."""
    layers, hidden = int(row["layers"]), int(row["hidden"])
    values = {"layers": layers, "hidden": hidden, "heads": 1, "sequence": 1, "vocabulary": 1}
    shape = ModelConfig(name="shape", family="bert", **values)  # type: ignore[arg-type]
    parameters = layers / int(row["depth"]) * arithmetic.layer_parameters(shape)
    memory = row["device_memory_bytes"]
    if pd.isna(memory):  # other devices ran than the cluster file's
        return float("nan")
    return parameters * PRECISIONS[str(row["precision"])].parameter / float(memory)


def best_of(cells: pd.DataFrame) -> pd.DataFrame:
    """Per origin, size and method the best micro-batch size; its ``gain`` is BitPipe over it."""
    valid = cells[cells["status"].eq("ok") & cells["samples_per_s"].notna()]
    keys = ["origin", "hidden", "stage_share", "method"]
    best = valid.loc[valid.groupby(keys)["samples_per_s"].idxmax()].sort_values(keys, ignore_index=True)
    ours = best[best["method"] == OURS].set_index(["origin", "hidden"])["samples_per_s"]
    wanted = best[["origin", "hidden"]].itertuples(index=False, name=None)
    best["bitpipe_over_it"] = pd.Series([ours.get(key) for key in wanted], dtype="Float64")
    best["bitpipe_over_it"] = best["bitpipe_over_it"] / best["samples_per_s"]
    return best.drop(columns=["status", "reason", "peak_memory_bytes"])


def break_even(origin: str, best: pd.DataFrame) -> dict[str, Any]:
    """The first share at which BitPipe is no faster than the best other method, interpolated."""
    others = best[best["method"] != OURS].groupby("stage_share")["bitpipe_over_it"].min().dropna()
    fits = best[best["method"] == OURS]["stage_share"]
    share = float(fits.max())
    previous: tuple[float, float] | None = None
    for at, ratio in others.items():
        point = (float(str(at)), float(ratio))
        if point[1] <= 1:
            share = point[0]
            if previous is not None:
                weight = (previous[1] - 1) / (previous[1] - point[1])
                share = previous[0] + weight * (point[0] - previous[0])
            break
        previous = point
    return {"origin": origin, "break_even_share": share, "last_fitting_share": float(fits.max())}


def _picture(best: pd.DataFrame, share: float, origin: str, name: str) -> Picture:
    with style():
        canvas = figure(PAGE, 2.8)
        axes = canvas.subplots()
        for method, rows in best[best["method"] != OURS].groupby("method"):
            look = look_of(str(method))
            known = rows.dropna(subset=["bitpipe_over_it"])
            axes.plot(known["stage_share"], known["bitpipe_over_it"].astype(float), **line(look))
        axes.axhline(1, color="black", lw=0.8)
        axes.axvline(share, color="black", lw=0.8, ls=":")
        axes.annotate(
            f"break-even {share:.3f}",
            (share, axes.get_ylim()[1]),
            xytext=(4, -2),
            textcoords="offset points",
            va="top",
        )
        axes.set_xlabel("weights, gradients and optimizer state of one stage copy / device memory")
        axes.set_ylabel("BitPipe's speedup over\nthe other method (×)")
        axes.set_title(f"8 devices, best micro-batch size that fits, {origin}", loc="left")
        axes.grid(axis="y")
        axes.legend()
    return Picture(
        name=name,
        title="Section 2.2.3: where the second copy of the weights pays",
        figure=canvas,
        alt="BitPipe's best throughput over that of DAPPLE and 1F1B-Int, falling as weights grow.",
    )
