"""The planner's answer: every choice, ranked by predicted throughput."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.output import Rendered, Table
from analysis.load.results import Results
from analysis.memory import GIB
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.schedule import METHODS

SHOWN = 12  # as many as a terminal is shown


@artefact("plan", title="Plan: method, W, D, B, v and cap for a model on a cluster")
def plan(results: Results) -> Rendered:
    """The best choices; all of them, and what is impossible or too large, are in the CSV."""
    ours = results.experiment("plan")
    # The label tells variants of one method apart; it is what the sweep calls the choice.
    frame = pd.DataFrame(
        {
            "choice": [_choice(row) for row in ours.to_dict("records")],
            "origin": ours["origin"],
            "width": ours["width"],
            "depth": ours["depth"],
            "micro_batch_size": ours["micro_batch_size"],
            "micro_batches": ours["micro_batches"],
            "chunks": ours["chunks"],
            "cap": ours["cap"],
            "samples_per_s": ours["samples_per_s"],
            "bubble_ratio": ours["bubble_ratio"],
            "peak_memory_gib": ours["peak_memory_bytes"] / GIB,
            "status": ours["status"],
            "calibration": ours["calibration"],
            "calibrated": ours["calibrated"],
            "reason": ours["reason"],
            "model": ours["model"],
            "cluster": ours["cluster"],
            "cell": ours["cell"],
        }
    ).sort_values(["origin", "samples_per_s"], ascending=[True, False], ignore_index=True)
    top = frame[frame["status"] == "ok"].groupby("origin").head(SHOWN)
    columns = [name for name in frame if name not in ("status", "reason", "model", "cluster", "cell")]
    counts = ", ".join(f"{count} {status}" for status, count in frame["status"].value_counts().items())
    return Rendered(
        tables=(
            Table(name="plan", title="All choices", frame=frame),
            Table(
                name="plan_best",
                title=f"The fastest choices that fit, {SHOWN} at most",
                frame=top[columns],
                grid=layout(top),
            ),
        ),
        notes=(f"{len(frame)} choices: {counts}", *remarks(ours)),
    )


def layout(top: pd.DataFrame) -> Grid:
    """The best choices, fastest first, in fewer than 100 columns: a block per origin."""
    blocks = [
        Block(
            title=_title(str(origin), rows),
            rows=tuple(entries(_cells(row)) for row in rows.to_dict("records")),
        )
        for origin, rows in top.groupby("origin")
    ]
    notes = ("cap –: as many chunks of activations as the method's own order holds.",)
    header = ("choice", "W", "D", "B", "N", "v", "cap", "samples/s", "peak GiB", "bubble")
    return Grid(header=header, blocks=tuple(blocks), notes=notes if blocks else ("No choice fits.",))


def _title(origin: str, rows: pd.DataFrame) -> str:
    """What was planned, and whose numbers it rests on."""
    models, clusters = (", ".join(sorted(rows[name].unique())) for name in ("model", "cluster"))
    fitted = ", ".join(sorted(map(str, rows["calibration"].dropna().unique())))
    doubt = "" if rows["calibrated"].eq(True).all() else ", uncalibrated here"
    return f"{origin}: {models} on {clusters}" + (f" (calibration {fitted}{doubt})" if fitted else "")


def _cells(row: dict[Any, Any]) -> list[str]:
    method = METHODS.get(row["choice"].partition(",")[0])
    if method is not None and pd.isna(row["chunks"]):
        row = {**row, "chunks": method.chunks}
    whole = ("width", "depth", "micro_batch_size", "micro_batches", "chunks", "cap")
    return [
        row["choice"],
        *("–" if pd.isna(row[name]) else str(int(row[name])) for name in whole),
        f"{row['samples_per_s']:.2f}",
        f"{row['peak_memory_gib']:.1f}",
        "–" if pd.isna(row["bubble_ratio"]) else f"{100 * row['bubble_ratio']:.1f} %",
    ]


def _choice(row: dict[Any, Any]) -> str:
    parts = [str(row["method"])]
    if row["early_forward"] is True:
        parts.append("early forward")
    elif pd.notna(row["cap"]) and row["method"] != "mixpipe":
        parts.append(f"cap {row['cap']}")
    if pd.notna(row["chunks"]) and row["method"] == "bitpipe":
        parts.append(f"v={row['chunks']}")
    return ", ".join(parts)
