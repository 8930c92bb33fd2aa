"""How much hangs on what the paper leaves open: every reading beside the default and the null models."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.labels import METHODS
from analysis.drawing.output import Rendered, Table
from analysis.load.results import NoResults, Results
from analysis.registry import artefact
from experiments.sensitivity import COUNTS, FILE

ID = "sensitivity"
TITLE = "What the paper leaves open, and how much hangs on it"
RERUN = "python -m experiments.sensitivity"


@artefact(ID, title=TITLE, rerun=RERUN)
def sensitivity(results: Results) -> Rendered:
    """Per reading, and per reading of N: twelve speedups, Table 5, Fig. 11 and the held-out ablations."""
    document = _document(results)
    frame = pd.DataFrame([_tidy(row, document["origin"]) for row in document["rows"]])
    each = pd.DataFrame([one for row in document["rows"] for one in _each(row, document["origin"])])
    return Rendered(
        tables=(
            Table(name=ID, title=TITLE, frame=frame, grid=_grid(frame, document["nulls"])),
            Table(
                name=f"{ID}_speedups",
                title="The twelve mean speedups under every reading",
                frame=each,
                grid=_speedups(each),
            ),
        ),
        notes=(
            f"{document['origin']}: each reading fitted again, with the same parameters to the same cells",
            *_skill(document),
        ),
    )


def _document(results: Results) -> dict[str, Any]:
    path = results.root / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise NoResults(results.root, ID, RERUN) from None
    return dict(document)


def _tidy(row: dict[str, Any], origin: str) -> dict[str, Any]:
    return {
        "origin": origin,
        "reading": row["reading"],
        "default": row["default"],
        "micro_batches": row["micro_batches"],
        "speedups_mean_error_percent": 100 * row["mean_error"],
        "speedups_worst_error_percent": 100 * row["worst_error"],
        "table5_hits": row["table5"]["hits"],
        "table5_searches": row["table5"]["searches"],
        "fig11_rises": row["fig11"]["rises"],
        "fig11_steps": row["fig11"]["steps"],
        "held_out_mean_error_percent": 100 * row["held_out"]["mean_error"],
        "held_out_worst_error_percent": 100 * row["held_out"]["worst_error"],
    }


def _each(row: dict[str, Any], origin: str) -> list[dict[str, Any]]:
    about = {"origin": origin, "reading": row["reading"], "micro_batches": row["micro_batches"]}
    return [
        about
        | {name: one[name] for name in ("figure", "compared_with", "speedup", "paper")}
        | {"error_percent": 100 * one["error"]}
        for one in row["speedups"]
    ]


def _grid(frame: pd.DataFrame, nulls: dict[str, float]) -> Grid:
    blocks = []
    for count, part in frame.groupby("micro_batches", sort=False):
        lines = [
            entries(
                [
                    f"{row['reading']}",
                    f"{row['speedups_mean_error_percent']:.1f} ({row['speedups_worst_error_percent']:.1f})",
                    f"{row['table5_hits']} of {row['table5_searches']}",
                    f"{row['fig11_rises']} of {row['fig11_steps']}",
                    f"{row['held_out_mean_error_percent']:.2f} ({row['held_out_worst_error_percent']:.2f})",
                ]
            )
            for row in part.to_dict("records")
        ]
        blocks.append(Block(title=COUNTS[str(count)], rows=tuple(lines)))
    known = {name: f"{100 * value:.2f}" for name, value in nulls.items()}
    null = entries(
        [
            "a constant per baseline; an ablation as the full method",
            f"{known['speedups_mean_error']} ({known['speedups_worst_error']})",
            "–",
            "–",
            f"{known['held_out_mean_error']} ({known['held_out_worst_error']})",
        ]
    )
    blocks.append(Block(title="null models", rows=(null,)))
    return Grid(
        header=("reading", "12 speedups, % off", "Table 5 hits", "Fig. 11 rises", "held out, % off"),
        blocks=tuple(blocks),
        notes=(
            "Mean absolute errors, the worst in brackets. Fig. 11: steps of B from 1 to 2 and from 2 to 4.",
        ),
    )


def _speedups(each: pd.DataFrame) -> Grid:
    names = list(dict.fromkeys(each["reading"]))
    blocks = []
    for count, part in each.groupby("micro_batches", sort=False):
        lines = []
        for (figure, method), rows in part.groupby(["figure", "compared_with"], sort=False):
            values = (f"{value:.2f}" for value in (rows["paper"].iloc[0], *rows["speedup"]))
            lines.append(entries([str(figure), METHODS[str(method)].name, *values]))
        blocks.append(Block(title=COUNTS[str(count)], rows=tuple(lines)))
    header = ("figure", "BitPipe over", "paper", *map(str, range(len(names))))
    said = "; ".join(f"{place} {name}" for place, name in enumerate(names))
    return Grid(header=header, blocks=tuple(blocks), notes=(f"Readings: {said}.",), text_columns=2)


def _skill(document: dict[str, Any]) -> list[str]:
    """Whether the default is better than the null; where it is not, nothing is claimed."""
    null = document["nulls"]["speedups_mean_error"]
    said = []
    for row in document["rows"]:
        if row["default"]:
            worse = row["mean_error"] >= null
            said.append(
                f"{COUNTS[row['micro_batches']]}: the default's speedups are {100 * row['mean_error']:.1f}% "
                f"off in the mean, {100 * row['worst_error']:.1f}% at worst; a constant per baseline is "
                f"{100 * null:.1f}% off" + (": no skill is claimed for them" if worse else "")
            )
    return said
