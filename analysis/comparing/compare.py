"""Two result sets, paired cell by cell: which got slower or faster beyond noise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.output import Table
from analysis.load.records import throughput_interval
from analysis.load.results import Results
from bitpipe.errors import InputError, choose

_MODEL = ("model", "layers", "hidden")
_SHAPE = ("depth", "width", "micro_batch_size", "micro_batches")
_TRAINING = ("precision", "learning_rate", "clip_norm", "seed")
_SCHEDULE = ("method", "placement", "chunks", "cap", "early_forward", "sync", "layout")
_PLACE = ("cluster", "calibration", "data", "iterations")
PAIRING = {
    "cell": ("cell",),
    "method": ("origin", *_MODEL, *_SHAPE, *_TRAINING, *_PLACE),
    "cluster": ("origin", *_MODEL, *_SHAPE, *_TRAINING, *_SCHEDULE),
}
"""What two cells must share to be a pair: ``cell`` everything (two revisions), ``method`` all but
the schedule, ``cluster`` all but the hardware; never two origins, whose numbers mean different things."""


class Change(StrEnum):
    """What became of a pair, from A to B."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "within noise"
    BROKEN = "broken"  # ok in A, not in B
    REPAIRED = "repaired"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Pairs of cells.

    Attributes:
        pairs: one row per pair: what it is, both throughputs, ratio B/A with its interval, change.
        alone: cells with no partner: how many in A, in B.
    """

    pairs: pd.DataFrame
    alone: tuple[int, int]

    @property
    def worse(self) -> int:
        """How many pairs got slower beyond noise, or broke."""
        return int(self.pairs["change"].isin([Change.SLOWER.value, Change.BROKEN.value]).sum())


def select(text: str) -> pd.DataFrame:
    """The cells that ``DIR`` or ``DIR:column=value,…`` names.

    Raises:
        InputError: no such folder, no records in it, an unknown column, or nothing left.
    """
    folder, _, filters = text.partition(":")
    root = Path(folder)
    if not root.is_dir():
        raise InputError("compare", folder, "no such results folder")
    cells = Results(root).cells
    for part in filter(None, filters.split(",")):
        column, _, value = part.partition("=")
        choose("column", column, [name for name in cells.columns if name not in ("labels", "metrics")])
        cells = cells[cells[column].astype("string") == value]
    if cells.empty:
        raise InputError("compare", text, "no record fits")
    return cells


def compare(a: pd.DataFrame, b: pd.DataFrame, *, by: str = "cell", noise_percent: float = 1.0) -> Comparison:
    """Pair the cells of A and B and judge each pair's ratio of throughput, B over A.

    The interval of a ratio comes from the fastest and slowest iteration in the second half of both. A pair
    is slower (faster) if the whole interval lies below (above) 1 by more than ``noise_percent``.

    Raises:
        InputError: ``by`` is unknown, or a key is not unique in A or B.
    """
    keys = list(PAIRING[choose("by", by, PAIRING)])
    for name, cells in (("A", a), ("B", b)):
        twice = cells[cells.duplicated(keys, keep=False)]
        if len(twice):
            first = ", ".join(f"{key}={twice.iloc[0][key]}" for key in keys)
            hint = "narrow it: DIR:method=bitpipe,origin=simulated"
            raise InputError("compare", name, f"{len(twice)} cells share {first}", hint)
    a, b = (cells.assign(_key=_keys(cells, keys)) for cells in (a, b))
    both = a.merge(b, on="_key", suffixes=("_a", "_b"))
    rows = [_pair(row, noise_percent) for row in both.to_dict("records")]
    alone = (int((~a["_key"].isin(both["_key"])).sum()), int((~b["_key"].isin(both["_key"])).sum()))
    return Comparison(pairs=pd.DataFrame(rows, columns=None if rows else ["change"]), alone=alone)


def table(found: Comparison) -> Table:
    """The pairs, the worst first."""
    order = [change.value for change in Change]
    frame = found.pairs.assign(_o=[order.index(change) for change in found.pairs["change"]])
    frame = frame.sort_values(["_o", "ratio"] if "ratio" in frame else ["_o"]).drop(columns="_o")
    rows = tuple(
        entries([row["what"], row["origin"], _number(row["a_samples_per_s"]), _number(row["b_samples_per_s"]),
                 _interval(row), row["change"]])
        for row in frame.to_dict("records")
    )  # fmt: skip
    header = ("cell", "origin", "A samples/s", "B samples/s", "B/A", "change")
    notes = (f"Cells without a partner: {found.alone[0]} in A, {found.alone[1]} in B.",)
    grid = Grid(header=header, blocks=(Block(title="", rows=rows),), notes=notes, text_columns=2)
    return Table(name="compare", title="B compared with A", frame=frame, grid=grid)


def _keys(cells: pd.DataFrame, keys: list[str]) -> pd.Series:
    return cells[keys].astype("string").fillna("").agg("|".join, axis="columns")


def _pair(row: Any, noise_percent: float) -> dict[str, Any]:
    sides = {side: _side(row, side) for side in "ab"}
    (a, a_low, a_high), (b, b_low, b_high) = sides["a"], sides["b"]
    method, width = row["method_a"], row["width_a"]
    other = f" → {row['method_b']}" if row["method_b"] != method else ""
    what = (
        f"{method}{other} D={row['depth_a']} N={row['micro_batches_a']} W={width} "
        f"{row['model_a']} {row['cell_a']}"
    )
    found: dict[str, Any] = {
        "what": what,
        "origin": row["origin_a"]
        if row["origin_a"] == row["origin_b"]
        else f"{row['origin_a']} → {row['origin_b']}",
        "a_samples_per_s": a,
        "b_samples_per_s": b,
        "ratio": None,
        "ratio_low": None,
        "ratio_high": None,
        "a_revision": row["revision_a"],
        "b_revision": row["revision_b"],
    }
    if a is None or b is None:
        ok = (row["status_a"] == "ok", row["status_b"] == "ok")
        change = {(True, False): Change.BROKEN, (False, True): Change.REPAIRED}.get(ok, Change.UNKNOWN)
        return found | {"change": change.value}
    ratio, low, high = b / a, b_low / a_high, b_high / a_low
    noise = noise_percent / 100
    change = Change.SLOWER if high < 1 - noise else Change.FASTER if low > 1 + noise else Change.SAME
    return found | {"ratio": ratio, "ratio_low": low, "ratio_high": high, "change": change.value}


def _side(row: Any, side: str) -> tuple[Any, Any, Any]:
    value = row[f"samples_per_s_{side}"]
    if row[f"status_{side}"] != "ok" or pd.isna(value):
        return None, None, None
    low, high = throughput_interval(row[f"metrics_{side}"], int(row[f"measured_{side}"]))
    return value, low or value, high or value


def _number(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.3f}"


def _interval(row: Any) -> str:
    if row["ratio"] is None or pd.isna(row["ratio"]):
        return "–"
    return f"{row['ratio']:.4f} [{row['ratio_low']:.4f}, {row['ratio_high']:.4f}]"
