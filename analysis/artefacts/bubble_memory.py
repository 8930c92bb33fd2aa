"""Table 3: bubbles and memory, as printed, exact, and of runs, with the reason of each difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Entry, Grid, entries
from analysis.drawing.output import Rendered, Table
from analysis.load.results import NoResults, Results
from analysis.registry import artefact
from analysis.remarks import remarks
from analysis.table3_formulas import ROWS, Row, why_activation, why_bubble
from bitpipe.origin import Origin

ID = "table3_bubble_memory"
TITLE = "Table 3: bubble ratio and memory"
EXACT = 1e-9
# A run's stages are not equal (embedding, head) and its transfers take time; what it holds it counts.
RUN_TOLERANCE = 0.01
TOLERANCE = {"bubble_ratio": RUN_TOLERANCE}
KEYS = ["variant", "depth", "micro_batches", "quantity"]
_EXACT = Origin.SIMULATED.value
_PEAKS = ("activation_least", "activation_most")
_MISSING = "missing"
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
    generated schedule at unit costs; runs have ``virtual``, ``emulated`` or ``measured``, and
    there agree with the exact value within ``TOLERANCE``, else exactly. ``why`` a value is not what
    the paper prints is known of exact values, and of runs that agree with them.
    """
    found: list[dict[str, Any]] = []
    for _, row in rows.iterrows():
        variant, depth, count = str(row["variant"]), int(row["depth"]), int(row["micro_batches"])
        formula = ROWS[variant]
        paper = printed_values(formula, depth, count)
        for quantity, value in _values(row, devices, formula):
            exact = row["origin"] == _EXACT
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
    exact_values = frame[frame["origin"] == _EXACT].set_index(KEYS)["value"]
    frame["exact_value"] = [exact_values.get(key) for key in frame[KEYS].itertuples(index=False, name=None)]
    run = frame["origin"] != _EXACT
    tolerance = frame["quantity"].map(lambda quantity: TOLERANCE.get(quantity, EXACT))
    near = (frame["value"] - frame["exact_value"].astype(float)).abs() <= tolerance
    frame["agrees_with_exact"] = near.where(run & frame["exact_value"].notna(), None)
    # A run with the exact value differs from the paper for the reason that the exact one does.
    reasons = frame[frame["origin"] == _EXACT].set_index(KEYS)["why"]
    same = [reasons.get(key, "") for key in frame[KEYS].itertuples(index=False, name=None)]
    frame["why"] = frame["why"].where(~(run & near), same)
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
    columns = ("paper", "exact", *runs)
    header = ("D", "N", *(f"{of}, {by}" for of in ("bubble %", "peak Ma", "Mθ") for by in columns), "why not")
    notes = (
        "Peak Ma: least and most activations over devices, in those of one micro-batch on 1/D of the model; "
        "Mθ: weights on a device, in those of 1/D of the model.",
        "Exact: the generated schedule at a stage's forward 1, backward 2, transfers free (simulated); in "
        "brackets whether the printed formula gives that, or holds as a bound.",
        "Runs: in brackets whether they agree with the exact value, a bubble within "
        f"{100 * RUN_TOLERANCE:g} percentage point, Ma and Mθ exactly. Ranks count their Ma while they run, "
        "from what forwards leave until backwards take it; their Mθ are the layers that they have. An "
        "emulated rank has no tensors: it keeps names in their place, and its layers are those of the "
        "stages that it ran.",
        *(f"[{place}] {sentence}" for place, sentence in enumerate(reasons, 1)),
    )
    return Grid(header=header, blocks=tuple(blocks), notes=notes, text_columns=0)


def _line(group: pd.DataFrame, runs: list[str], reasons: list[str]) -> tuple[Entry, ...]:
    records: list[Any] = group.to_dict("records")
    found = {(row["origin"], row["quantity"]): row for row in records}
    exact = {row["quantity"]: row for row in records if row["origin"] == _EXACT}
    formula, point = ROWS[records[0]["variant"]], (records[0]["depth"], records[0]["micro_batches"])
    printed = printed_values(formula, *point)

    def value(origin: str, quantity: str) -> Any:
        return found.get((origin, quantity), {}).get("value")

    def of_runs(show: Callable[..., str], *quantities: str) -> list[str]:
        shown = []
        for name in runs:
            agree = [found.get((name, quantity), {}).get("agrees_with_exact") for quantity in quantities]
            shown.append(show(*(value(name, quantity) for quantity in quantities)) + _mark(_all(agree)))
        return shown

    def of_schedule(show: Callable[..., str], *quantities: str) -> str:
        agree = [exact.get(quantity, {}).get("agrees_with_paper") for quantity in quantities]
        word = _peak_agrees(exact, agree) if quantities == _PEAKS else _all(agree)
        return show(*(value(_EXACT, quantity) for quantity in quantities)) + _mark(word)

    marks = []
    for quantity in ("bubble_ratio", *_PEAKS):
        sentence = exact.get(quantity, {}).get("why", "")
        if sentence and sentence not in reasons:
            reasons.append(sentence)
        if sentence:
            marks.append(reasons.index(sentence) + 1)
    return entries(
        [
            *point,
            _percent(printed["bubble_ratio"]),
            of_schedule(_percent, "bubble_ratio"),
            *of_runs(_percent, "bubble_ratio"),
            _span(printed.get("activation_least"), printed["activation_most"]),
            of_schedule(_span, *_PEAKS),
            *of_runs(_span, *_PEAKS),
            _copies(printed["weights"]),
            of_schedule(_copies, "weights"),
            *of_runs(_copies, "weights"),
            " ".join(f"[{mark}]" for mark in dict.fromkeys(marks)),
        ]
    )


def _percent(value: float | None) -> str:
    return _MISSING if value is None else f"{100 * value:.2f}"


def _span(least: float | None, most: float | None) -> str:
    if most is None:
        return _MISSING
    if least is None:
        return f"≤ {most:g}"
    return f"{most:g}" if least == most else f"{least:g} – {most:g}"


def _copies(value: float | None) -> str:
    return _MISSING if value is None else f"{value:g}"


def _peak_agrees(exact: dict[str, Any], activation: list[Any]) -> str:
    """Where the paper prints a bound alone, a peak below it agrees."""
    most = exact.get("activation_most", {})
    bound = most.get("paper_value")
    if "activation_least" in exact and pd.isna(exact["activation_least"]["paper_value"]) and pd.notna(bound):
        return "holds" if most["value"] < bound - EXACT else _yes(most["value"] <= bound + EXACT)
    return _all(activation)


def _all(agree: list[Any]) -> str:
    """Whether all that can agree do; empty if nothing can."""
    known = [bool(agrees) for agrees in agree if agrees is not None and not pd.isna(agrees)]
    return _yes(all(known)) if known else ""


def _mark(word: str) -> str:
    return f" ({word})" if word else ""


def _yes(agrees: bool) -> str:
    return "yes" if agrees else "no"
