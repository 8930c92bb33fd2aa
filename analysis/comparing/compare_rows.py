"""What may be compared with what, and which differences can be told from noise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from analysis.drawing.labels import MODELS
from analysis.load.paper import printed
from experiments.running.repeats import CONFIDENCE, paired_ratio

PAPER_DEVICE = "A800"
_SHAPE = ["layers", "hidden", "sequence"]


def comparable_with_paper(rows: pd.DataFrame) -> pd.Series:
    """Whether a row's samples/s are the paper's quantity: one of its models on its devices."""
    device = rows["device_name"].fillna("").str.contains(PAPER_DEVICE)
    return rows["origin"].isin(["simulated", "measured"]) & paper_scale(rows) & device


def paper_scale(rows: pd.DataFrame) -> pd.Series:
    """Whether a row's model is one of the paper's at its full size, whatever it is called."""
    shapes = set(printed("table4_models")[_SHAPE].itertuples(index=False, name=None))
    return pd.Series([key in shapes for key in rows[_SHAPE].itertuples(index=False, name=None)], rows.index)


def model_names(rows: pd.DataFrame) -> pd.Series:
    """The name of each row's model; a shrunk model of the paper (``scale=fit``) says its size."""
    shrunk = rows["model"].isin(MODELS) & ~paper_scale(rows) & rows["hidden"].notna()
    size = rows["layers"].astype("string") + " layers, hidden " + rows["hidden"].astype("string")
    return rows["model"].where(~shrunk, rows["model"] + " shrunk to " + size).astype("string")


def decide(rows: pd.DataFrame, name: str, value: str, digits: int = 9) -> str | None:
    """The name of the row with the highest value, if it stands out.

    Intervals are the columns ``<value>_low`` and ``<value>_high``; a row without them counts
    as a point. Rows that equal the best one to ``digits`` digits tie with it; rows whose interval
    overlaps the best one's leave it undecided, or where both were measured in the same repeats, rows
    whose ratio to the best one has an interval that reaches 1.

    Returns:
        ``best``, ``tie: a, b`` or ``undecided: a, b``; None if fewer than two rows have a value.
    """
    valid: list[Any] = rows[rows["status"].eq("ok") & rows[value].notna()].to_dict("records")
    if len(valid) < 2:
        return None
    best = max(valid, key=lambda row: float(row[value]))
    equal = [row for row in valid if abs(row[value] / best[value] - 1) < 10**-digits]
    close = [row for row in valid if row is best or _reaches(row, best, value)]
    if any(row not in equal for row in close):
        return "undecided: " + ", ".join(row[name] for row in valid if row in close or row in equal)
    if len(equal) > 1:
        return "tie: " + ", ".join(row[name] for row in equal)
    return str(best[name])


def _reaches(row: Mapping[str, Any], best: Mapping[str, Any], value: str) -> bool:
    paired = _paired(row, best) if value == "samples_per_s" else None
    if paired is not None:
        return paired[1] >= 1
    return interval_end(row, value, "high") >= interval_end(best, value, "low")


def interval_end(row: Mapping[str, Any], value: str, which: str) -> float:
    """The ``low`` or ``high`` end of a value's interval; the value itself where it has none."""
    end = row.get(f"{value}_{which}")
    return float(row[value] if end is None or pd.isna(end) else end)


def ratio_interval(
    row: Mapping[str, Any], base: Mapping[str, Any], confidence: float = CONFIDENCE
) -> tuple[float, float] | tuple[None, None]:
    """The interval of a row's samples/s over another's.

    Where the same ranks measured both repeatedly and in turns, it is the t-interval of the ratios
    within the repeats, from which what both have in common has dropped out. Else it is what the two
    rows' own intervals leave open; (None, None) without those.
    """
    paired = _paired(row, base, confidence)
    if paired is not None:
        return paired
    names = ("samples_per_s_low", "samples_per_s_high")
    if any(pd.isna(side.get(name, pd.NA)) for side in (row, base) for name in names):
        return None, None
    low, high = (float(row[name]) for name in names)
    base_low, base_high = (float(base[name]) for name in names)
    return low / base_high, high / base_low


def single_runs(row: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether two rows vary but were not repeated together.

    Their intervals are then the ranges of a few iterations, which often lie apart by chance: they may
    mark a table, and prove nothing.
    """
    return ratio_interval(row, base) != (None, None) and _paired(row, base) is None


def _paired(
    row: Mapping[str, Any], base: Mapping[str, Any], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    one, other = row.get("metrics"), base.get("metrics")
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return None
    found = paired_ratio(one, other, int(row["measured"]), confidence)
    return None if found is None else found[1:]


EQUAL = {
    "global_batch": "B̂",
    "model": "model",
    "precision": "precision",
    "learning_rate": "learning rate",
    "clip_norm": "gradient clipping",
    "seed": "seed (data order)",
    "data": "data",
    "cluster": "cluster",
    "origin": "origin",
}
"""What two cells must share before their throughput is compared. The optimizer is Adam in all."""


def refusal(rows: pd.DataFrame, declared: Collection[str] = ()) -> str | None:
    """Why rows must not be compared: the settings of :data:`EQUAL` in which they differ.

    Args:
        rows: the cells of one comparison.
        declared: settings that the comparison varies on purpose.

    Returns:
        None if they may be compared.
    """
    found = []
    for column, name in EQUAL.items():
        values = rows[column].dropna().unique() if column in rows and column not in declared else ()
        if len(values) > 1:
            found.append(f"{name} ({', '.join(sorted(map(str, values)))})")
    return f"refused: the cells differ in {'; '.join(found)}" if found else None
