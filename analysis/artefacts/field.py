"""What the paper does not compare: every synchronous method, throughput over memory at equal global batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.labels import METHODS, in_order
from analysis.drawing.labels import method as look_of
from analysis.drawing.labels import model as name_of
from analysis.drawing.output import Picture, Rendered, Table
from analysis.drawing.style import PAGE, figure, line, style
from analysis.load.results import NoResults, Results
from analysis.memory import GIB
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.simulate.memory import Verdict, verdict

ID = "field"
TITLE = "Every synchronous method: throughput and memory"
MEMORIES = (24, 40, 80)  # GiB of a device
WHERE = ["origin", "cluster", "model", "ranks"]
LEVEL = 0.01  # pairs closer than that are level: the cost model does not tell them apart


@artefact(ID, title=TITLE)
def field(results: Results) -> Rendered:
    """All cells, who wins at which memory, and what was refused."""
    ours = results.experiment(ID, every_model=True)
    frame = tidy(ours)
    if not frame["status"].eq("ok").any():
        raise NoResults(results.root, ID)
    best = winners(frame)
    refused = frame[frame["status"].eq("invalid")].groupby(["method", "micro_batches", "reason"]).size()
    return Rendered(
        tables=(
            Table(name=ID, title=f"{TITLE}: all cells", frame=frame),
            Table(name=f"{ID}_winners", title="Who wins where", frame=best, grid=layout(best)),
        ),
        pictures=tuple(_picture(str(origin), rows) for origin, rows in frame.groupby("origin")),
        notes=(
            *(f"{look_of(name).name} does not allow N={n}: {reason}" for name, n, reason in refused.index),
            *remarks(ours),
        ),
    )


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: where, the choice (method, v, cap, split, B, N), samples/s, GiB, ``frontier``.

    ``frontier`` marks what no other choice in the same place dominates: none needs less memory and is as
    fast, or as much memory and is faster.
    """
    columns = [*WHERE, "method", "variant", "chunks", "cap", "micro_batch_size", "micro_batches"]
    rows = rows.assign(variant=rows["variant"] if "variant" in rows else rows["method"])
    frame = rows[[*columns, "global_batch", "samples_per_s", "status", "reason", "cell"]].copy()
    frame["peak_gib"] = rows["peak_memory_bytes"] / GIB
    frame["frontier"] = False
    for _, group in frame[frame["status"].eq("ok")].groupby(WHERE):
        by_memory = group.sort_values(["peak_gib", "samples_per_s"], ascending=[True, False])
        rates = by_memory["samples_per_s"].astype(float)
        frame.loc[by_memory.index[rates > rates.cummax().shift(fill_value=0.0)], "frontier"] = True
    return frame.sort_values([*WHERE, "method", "variant", "micro_batches"], ignore_index=True)


def winners(frame: pd.DataFrame) -> pd.DataFrame:
    """Per place and device memory each method's best choice that fits, fastest first.

    ``behind_percent`` is how much less its throughput is than the winner's, ``level`` whether that is
    under 1 %; methods of which nothing fits have no row.
    """
    found: list[pd.DataFrame] = []
    ok = frame[frame["status"].eq("ok")]
    for (_, rows), memory in product(ok.groupby(WHERE), MEMORIES):
        fits = [verdict(peak * GIB, memory * GIB) is not Verdict.DOES_NOT_FIT for peak in rows["peak_gib"]]
        rows = rows[fits]
        if rows.empty:
            continue
        best = rows.loc[rows.groupby("method")["samples_per_s"].idxmax()]
        best = best.sort_values("samples_per_s", ascending=False).assign(memory_gib=memory)
        best["behind_percent"] = 100 * (1 - best["samples_per_s"] / best["samples_per_s"].iloc[0])
        best["level"] = best["behind_percent"] < 100 * LEVEL
        found.append(best)
    order = ["memory_gib", *WHERE, "method", "variant", "chunks", "cap", "micro_batch_size", "micro_batches"]
    columns = [*order, "samples_per_s", "peak_gib", "behind_percent", "level", "cell"]
    return pd.concat(found, ignore_index=True)[columns]


def layout(best: pd.DataFrame) -> Grid:
    """A block per cluster and model: the winner at every memory, what is level with it, BitPipe's place."""
    blocks = []
    for (origin, cluster, model), rows in best.groupby(["origin", "cluster", "model"]):
        lines = []
        for ranks, memory in product(sorted(rows["ranks"].unique()), MEMORIES):
            group = rows[rows["ranks"].eq(ranks) & rows["memory_gib"].eq(memory)]
            records: list[Any] = group.to_dict("records")
            if not records:
                lines.append(entries(["nothing fits", "–", "–", ranks, f"{memory} GiB", "–", "–"]))
                continue
            first, others = records[0], records[1:]
            next_one = f"{_choice(others[0])} −{others[0]['behind_percent']:.1f} %" if others else "–"
            bitpipe = next((one for one in records if one["method"] == "bitpipe"), None)
            lines.append(
                entries(
                    [
                        f"{_choice(first)}, {sum(one['level'] for one in records)} level"
                        if others and others[0]["level"]
                        else _choice(first),
                        next_one,
                        "does not fit" if bitpipe is None else f"−{bitpipe['behind_percent']:.1f} %",
                        ranks,
                        f"{memory} GiB",
                        f"{first['samples_per_s']:.2f}",
                        f"{first['peak_gib']:.1f}",
                    ]
                )
            )
        blocks.append(Block(title=f"{origin}: {name_of(str(model))} on {cluster}", rows=tuple(lines)))
    notes = (
        "Equal global batch, 4 samples a device; each method with its best B, v and cap that fits. In "
        "brackets B and N. Level: less than 1 % behind the winner, which the cost model does not tell apart.",
        "BitPipe: its best choice, split backward and larger or smaller cap included.",
    )
    header = ("winner", "next", "BitPipe", "devices", "memory", "samples/s", "peak GiB")
    return Grid(header=header, blocks=tuple(blocks), notes=notes, text_columns=3)


def _choice(row: dict[Any, Any]) -> str:
    known = look_of(str(row["method"])).name
    variant = "" if row["variant"] in (row["method"], "full") else f" {row['variant']}"
    return f"{known}{variant} ({row['micro_batch_size']}, {row['micro_batches']})"


def _picture(origin: str, frame: pd.DataFrame) -> Picture:
    ok = frame[frame["status"].eq("ok")]
    places = sorted({(str(row["model"]), int(row["ranks"])) for row in ok.to_dict("records")})
    clusters = sorted(ok["cluster"].unique())
    with style():
        canvas = figure(PAGE, 1.2 + 1.9 * len(places))
        panels = canvas.subplots(len(places), len(clusters), squeeze=False)
        handles: dict[str, Any] = {}
        for (row, (model, ranks)), (column, cluster) in product(enumerate(places), enumerate(clusters)):
            axes = panels[row, column]
            here = ok[ok["model"].eq(model) & ok["ranks"].eq(ranks) & ok["cluster"].eq(cluster)]
            for name in in_order(here["method"], METHODS):
                mine = here[here["method"] == name]
                axes.plot(
                    mine["peak_gib"], mine["samples_per_s"], **{**line(look_of(name)), "linestyle": "none"}
                )
            edge = here[here["frontier"]].sort_values("peak_gib")
            axes.step(edge["peak_gib"], edge["samples_per_s"], where="post", color="black", lw=0.8, zorder=0)
            for memory in MEMORIES:
                axes.axvline(memory, color="grey", lw=0.6, ls=":", zorder=0)
            axes.set_title(f"{name_of(str(model))}, {ranks} devices, {cluster}", loc="left")
            axes.set_xlim(right=82)
            if row == len(places) - 1:
                axes.set_xlabel("peak memory of a device (GiB)")
            if not column:
                axes.set_ylabel("throughput (samples/s)")
            drawn, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, drawn, strict=True))
        canvas.legend(list(handles.values()), list(handles), loc="outside upper left", ncols=6)
    return Picture(
        name=ID if origin == "simulated" else f"{ID}_{origin}",
        title=f"{TITLE} ({origin}); the line is the frontier",
        figure=canvas,
        alt="Throughput over peak memory, a marker per method and choice; the line is the frontier.",
    )
