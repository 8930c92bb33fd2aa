"""Table 3: bubbles and memory, as printed, exact, and of runs, with the reason of each difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.grid import Block, Entry, Grid, entries
from analysis.output import Rendered, Table
from analysis.registry import artefact
from analysis.remarks import remarks
from analysis.results import NoResults, Results
from analysis.table3_formulas import ROWS, Row, why_activation, why_bubble
from bitpipe.origin import Origin

ID = "table3_bubble_memory"
TITLE = "Table 3: bubble ratio and memory"
EXACT = 1e-9
# A run's stages are not equal (embedding, head) and its transfers take time.
RUN_TOLERANCE = 0.01
KEYS = ["variant", "depth", "micro_batches", "quantity"]
_UNIT = {"bubble_ratio": "", "activation_least": "Ma", "activation_most": "Ma", "weights": "Mθ"}


@artefact(ID, title=TITLE)
def table3_bubble_memory(results: Results) -> Rendered:
    """The printed formulas beside the exact values of the generated schedules and those of runs."""
    rows = results.experiment(ID)
    rows = rows[(rows["status"] == "ok") & rows["variant"].isin(ROWS)]
    if rows.empty:
        raise NoResults(results.root, ID)
    frame = tidy(rows, results.loaded.devices)
    table = Table(name=ID, title=TITLE, frame=frame, grid=layout(frame))
    return Rendered(tables=(table,), notes=remarks(results.experiment(ID)))


def tidy(rows: pd.DataFrame, devices: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, quantity and origin: the value, the printed one, and whether they agree.

    Quantities: ``bubble_ratio``, ``activation_least`` and ``activation_most`` (over devices, Ma),
    ``weights`` (copies of a stage's weights, Mθ). The origin ``simulated`` is the exact value of the
    generated schedule at unit costs; runs have ``virtual``, ``emulated`` or ``measured``.
    """
    found: list[dict[str, Any]] = []
    for _, row in rows.iterrows():
        variant, depth, count = str(row["variant"]), int(row["depth"]), int(row["micro_batches"])
        formula = ROWS[variant]
        paper = printed_values(formula, depth, count)
        for quantity, value in _values(row, devices, formula):
            exact = row["origin"] == Origin.SIMULATED.value
            agrees = abs(value - paper[quantity]) <= EXACT if quantity in paper else None
            found.append(
                {
                    "variant": variant,
                    "depth": depth,
                    "micro_batches": count,
                    "quantity": quantity,
                    "unit": _UNIT[quantity],
                    "origin": str(row["origin"]),
                    "value": value,
                    "paper_value": paper.get(quantity),
                    "agrees_with_paper": agrees if exact else None,
                    "why": why(variant, depth, count, quantity) if exact and agrees is False else "",
                }
            )
    frame = pd.DataFrame(found)
    exact_values = frame[frame["origin"] == Origin.SIMULATED.value].set_index(KEYS)["value"]
    frame["exact_value"] = [exact_values.get(key) for key in frame[KEYS].itertuples(index=False, name=None)]
    run = frame["origin"] != Origin.SIMULATED.value
    near = (frame["value"] - frame["exact_value"].astype(float)).abs() <= RUN_TOLERANCE
    frame["agrees_with_exact"] = near.where(run & frame["exact_value"].notna(), None)
    order = {name: place for place, name in enumerate(ROWS)}
    keys = [frame["variant"].map(order), frame["depth"], frame["micro_batches"]]
    by = pd.concat(keys, axis=1).assign(quantity=frame["quantity"].map(list(_UNIT).index), o=frame["origin"])
    return frame.loc[by.sort_values(list(by.columns)).index].reset_index(drop=True)


def printed_values(row: Row, depth: int, micro_batches: int) -> dict[str, float]:
    """What the paper's formulas give."""
    values = {
        "bubble_ratio": row.bubble(depth, micro_batches),
        "activation_most": row.most(depth, micro_batches),
        "weights": float(row.weights),
    }
    if row.least is not None:
        values["activation_least"] = row.least(depth, micro_batches)
    return values


def why(variant: str, depth: int, micro_batches: int, quantity: str) -> str:
    """The reason of a difference between the printed and the exact value."""
    if quantity == "bubble_ratio":
        return why_bubble(variant, depth, micro_batches)
    return why_activation(variant, depth, micro_batches, quantity.removeprefix("activation_"))


def _values(row: pd.Series, devices: pd.DataFrame, formula: Row) -> Iterator[tuple[str, float]]:
    if pd.notna(row["bubble_ratio"]):
        yield "bubble_ratio", float(row["bubble_ratio"])
    if not {"peak_activation_ma", "weights_m_theta"} <= set(devices.columns):
        return
    mine = devices[(devices["cell"] == row["cell"]) & (devices["attempt"] == row["attempt"])]
    peaks = mine["peak_activation_ma"].dropna().astype(float)
    if not peaks.empty:
        yield "activation_least", float(peaks.min())
        yield "activation_most", float(peaks.max())
    copies = mine["weights_m_theta"].dropna().astype(float)
    if not copies.empty:
        yield "weights", float(copies.max())


def layout(frame: pd.DataFrame) -> Grid:
    """A block per method: printed, exact and run values side by side, each origin in its column."""
    origins = [
        o.value for o in (Origin.EMULATED, Origin.VIRTUAL, Origin.MEASURED) if o.value in set(frame["origin"])
    ]
    runs = origins or [Origin.EMULATED.value]
    reasons: list[str] = []
    blocks = []
    for variant, rows in frame.groupby("variant", sort=False):
        points = rows.groupby(["depth", "micro_batches"], sort=True)
        lines = tuple(_line(group, runs, reasons) for _, group in points)
        title = f"{ROWS[str(variant)].title}: bubble {ROWS[str(variant)].bubble_text} as printed"
        blocks.append(Block(title=title, rows=lines))
    header = (
        "D",
        "N",
        "bubble %, paper",
        "bubble %, exact",
        *(f"bubble %, {name}" for name in runs),
        "bubble agrees",
        "peak Ma, paper",
        "peak Ma, exact",
        "peak agrees",
        "Mθ, paper",
        "Mθ, exact",
        "why not",
    )
    notes = (
        "Peak Ma: least and most activations over devices, in those of one micro-batch on one stage; Mθ: "
        "copies of a stage's weights on a device.",
        "Exact: the generated schedule at a stage's forward 1, backward 2, transfers free (simulated). A run "
        f"agrees (yes) if its bubble is within {100 * RUN_TOLERANCE:g} percentage point of the exact one.",
        *(f"[{place}] {sentence}" for place, sentence in enumerate(reasons, 1)),
    )
    return Grid(header=header, blocks=tuple(blocks), notes=notes, text_columns=0)


def _line(group: pd.DataFrame, runs: list[str], reasons: list[str]) -> tuple[Entry, ...]:
    records: list[Any] = group.to_dict("records")
    exact = {row["quantity"]: row for row in records if row["origin"] == Origin.SIMULATED.value}
    formula, point = ROWS[records[0]["variant"]], (records[0]["depth"], records[0]["micro_batches"])
    bubbles = group[group["quantity"] == "bubble_ratio"].set_index("origin")

    def percent(value: Any) -> str:
        return "missing" if value is None or pd.isna(value) else f"{100 * value:.2f}"

    def span(key: str) -> str:
        if "activation_most" not in exact:
            return "missing"
        least, most = (exact.get(f"activation_{end}", {}).get(key) for end in ("least", "most"))
        return f"≤ {most:g}" if least is None or pd.isna(least) else f"{least:g} – {most:g}"

    marks = []
    for quantity in ("bubble_ratio", "activation_least", "activation_most"):
        sentence = exact.get(quantity, {}).get("why", "")
        if sentence and sentence not in reasons:
            reasons.append(sentence)
        if sentence:
            marks.append(reasons.index(sentence) + 1)
    bubble = exact.get("bubble_ratio", {})
    activation = [exact.get(f"activation_{end}", {}).get("agrees_with_paper") for end in ("least", "most")]
    return entries(
        [
            *point,
            percent(formula.bubble(*point)),
            percent(bubble.get("value")),
            *(percent(bubbles["value"].get(name)) + _mark(bubbles, name) for name in runs),
            _yes(bubble.get("agrees_with_paper")),
            span("paper_value"),
            span("value"),
            _peak_agrees(exact, activation),
            formula.weights,
            f"{exact['weights']['value']:g}" if "weights" in exact else "missing",
            " ".join(f"[{mark}]" for mark in dict.fromkeys(marks)),
        ]
    )


def _peak_agrees(exact: dict[str, Any], activation: list[Any]) -> str:
    """Where the paper prints a bound alone, a peak below it agrees."""
    most = exact.get("activation_most", {})
    bound = most.get("paper_value")
    if "activation_least" in exact and pd.isna(exact["activation_least"]["paper_value"]) and pd.notna(bound):
        return "holds" if most["value"] < bound - 1e-9 else _yes(most["value"] <= bound + 1e-9)
    return _yes(False if False in activation else True if True in activation else None)


def _mark(bubbles: pd.DataFrame, origin: str) -> str:
    agrees = bubbles["agrees_with_exact"].get(origin)
    return "" if agrees is None or pd.isna(agrees) else (" (yes)" if agrees else " (no)")


def _yes(agrees: Any) -> str:
    return "–" if agrees is None or pd.isna(agrees) else "yes" if agrees else "no"
