"""Fig. 9: throughput under pipeline parallelism alone, and with data parallelism at Table 5's settings."""

from __future__ import annotations

import pandas as pd

from analysis.drawing.bars import Panel, grouped_bars
from analysis.drawing.labels import METHODS, whose
from analysis.drawing.labels import model as label
from analysis.drawing.output import Picture, Rendered, Table
from analysis.drawing.speedup_figure import speedup_picture
from analysis.load.results import Results
from analysis.registry import artefact
from analysis.remarks import remarks
from analysis.speedups import against_paper, own_of, speedups, summary

COLUMNS = [
    "model",
    "gpus",
    "global_batch",
    "method",
    "origin",
    "cluster",
    "samples_per_s",
    "bubble_ratio",
    "status",
    "width",
    "depth",
    "micro_batch_size",
    "micro_batches",
    "calibration",
    "calibrated",
    "cell",
    "reason",
]
READINGS = {"fixed_batch": "N = B̂/(B·W)", "n_is_d": "N = D"}


@artefact("fig9ab_throughput_pp", title="Fig. 9a, 9b: throughput under pipeline parallelism")
def fig9ab_throughput_pp(results: Results) -> Rendered:
    """Bars over B̂ per model, and the mean speedups beside the paper's six."""
    id = "fig9ab_throughput_pp"
    ours = results.experiment(id).rename(columns={"ranks": "gpus"})
    frame = ours.sort_values(["model", "origin", "global_batch", "method"])[COLUMNS]
    each = speedups(ours, ["model", "origin", "gpus", "global_batch"])
    means = against_paper(each, ["model", "origin"], {"bert_64": "fig9a", "gpt_96": "fig9b"}, own_of(ours))
    pictures = []
    for origin, rows in frame.groupby("origin", sort=False):
        panels = [
            Panel(title=f"{label(str(model))}, {whose(group)}", rows=group, point="global_batch")
            for model, group in rows.groupby("model")
        ]
        pictures.append(
            Picture(
                name=_name(id, str(origin), frame),
                title="Fig. 9a, 9b: throughput of four methods on 8 devices",
                figure=grouped_bars(
                    panels,
                    METHODS,
                    series="method",
                    value="samples_per_s",
                    ylabel="throughput (samples/s)",
                    xlabel="mini-batch B̂ (samples)",
                ),
                alt="Bars of samples per second over the mini-batch size, one bar per method.",
            )
        )
    return Rendered(
        tables=(
            Table(name=id, title="Fig. 9a, 9b: throughput (samples/s)", frame=frame),
            Table(name=f"{id}_speedups", title="Mean speedups of BitPipe beside the paper's", frame=means),
        ),
        pictures=(
            *pictures,
            *speedup_picture(means, f"{id}_speedups", "Fig. 9a, 9b: mean speedups beside the paper's", {}),
        ),
        notes=(
            *(summary(rows, f"Fig. 9a, 9b, {origin}") for origin, rows in means.groupby("origin")),
            *remarks(ours),
        ),
    )


@artefact("fig9cd_throughput_dp", title="Fig. 9c, 9d: throughput with data parallelism")
def fig9cd_throughput_dp(results: Results) -> Rendered:
    """Bars over GPUs per model and reading of N, mean speedups beside the paper's six, scaling."""
    id = "fig9cd_throughput_dp"
    ours = results.experiment(id).rename(columns={"ranks": "gpus"})
    columns = ["reading", *COLUMNS]
    frame = ours.sort_values(["model", "origin", "reading", "gpus", "method"])[columns]
    each = speedups(ours, ["model", "origin", "reading", "gpus"])
    figures = {"bert_64": "fig9c", "gpt_96": "fig9d"}
    means = against_paper(each, ["model", "origin", "reading"], figures, own_of(ours))
    notes = [
        summary(group, f"Fig. 9c, 9d, {READINGS.get(str(reading), reading)}, {origin}")
        for (origin, reading), group in means.groupby(["origin", "reading"])
    ]
    pictures = []
    for origin, rows in frame.groupby("origin", sort=False):
        panels = [
            Panel(
                title=f"{label(str(model))}, {READINGS.get(str(reading), reading)}, {whose(group)}",
                rows=group,
                point="gpus",
                group=str(model),
            )
            for (model, reading), group in rows.groupby(["model", "reading"])
        ]
        pictures.append(
            Picture(
                name=_name(id, str(origin), frame),
                title="Fig. 9c, 9d: throughput at the paper's settings of Table 5",
                figure=grouped_bars(
                    panels,
                    METHODS,
                    series="method",
                    value="samples_per_s",
                    ylabel="throughput (samples/s)",
                    xlabel="GPUs",
                ),
                alt="Bars of samples per second over the number of GPUs, one bar per method, for both "
                "models and both readings of the number of micro-batches.",
            )
        )
    return Rendered(
        tables=(
            Table(name=id, title="Fig. 9c, 9d: throughput (samples/s)", frame=frame),
            Table(name=f"{id}_speedups", title="Mean speedups of BitPipe beside the paper's", frame=means),
            Table(
                name=f"{id}_scaling", title="Weak scaling: throughput per GPU against 8", frame=scaling(frame)
            ),
        ),
        pictures=(
            *pictures,
            *speedup_picture(
                means, f"{id}_speedups", "Fig. 9c, 9d: mean speedups beside the paper's", READINGS
            ),
        ),
        notes=(*notes, *remarks(ours)),
    )


def scaling(frame: pd.DataFrame) -> pd.DataFrame:
    """Throughput per GPU over that at the fewest GPUs, per model, origin, reading and method (C14)."""
    known = frame.dropna(subset=["samples_per_s"]).sort_values("gpus")
    rows = known[["model", "origin", "reading", "method", "gpus", "samples_per_s"]].copy()
    rows["samples_per_s_per_gpu"] = rows["samples_per_s"] / rows["gpus"]
    first = rows.groupby(["model", "origin", "reading", "method"])["samples_per_s_per_gpu"].transform("first")
    rows["weak_scaling_efficiency"] = rows["samples_per_s_per_gpu"] / first
    return rows.sort_values(["model", "origin", "reading", "method", "gpus"], ignore_index=True)


def _name(id: str, origin: str, frame: pd.DataFrame) -> str:
    return id if frame["origin"].nunique() == 1 else f"{id}_{origin}"
