"""What may be compared with what."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from analysis.drawing.labels import MODELS
from analysis.load.paper import printed
from experiments.records.devices import same_device

PAPER_DEVICE = "NVIDIA A800 80GB SXM"
_SHAPE = ["layers", "hidden", "sequence"]


def comparable_with_paper(rows: pd.DataFrame) -> pd.Series:
    """Whether a row's samples/s are the paper's quantity: one of its models on its devices."""
    return rows["origin"].isin(["simulated", "measured"]) & paper_scale(rows) & papers_devices(rows)


def papers_devices(rows: pd.DataFrame) -> pd.Series:
    """Whether every device of a row (that ran, or that is modelled) is the paper's."""
    names = {
        name: all(same_device(one, PAPER_DEVICE) for one in name.split(", "))
        for name in rows["device_name"].dropna().unique()
    }
    return rows["device_name"].map(names).fillna(False).astype(bool)


def ran_elsewhere(rows: pd.DataFrame) -> pd.Series:
    """Whether a row is of other devices than the paper's; virtual and emulated times are of none."""
    of_devices = rows["origin"].isin(["simulated", "measured"]) & rows["device_name"].notna()
    return of_devices & ~papers_devices(rows)


def papers_own(rows: pd.DataFrame) -> pd.Series:
    """Whether a row is of one of the paper's models at full size, and not of other devices."""
    return paper_scale(rows) & ~ran_elsewhere(rows)


def paper_scale(rows: pd.DataFrame) -> pd.Series:
    """Whether a row's model is one of the paper's at its full size, whatever it is called."""
    shapes = set(printed("table4_models")[_SHAPE].itertuples(index=False, name=None))
    return pd.Series([key in shapes for key in rows[_SHAPE].itertuples(index=False, name=None)], rows.index)


def model_names(rows: pd.DataFrame) -> pd.Series:
    """The name of each row's model; a shrunk model of the paper (``scale=fit``) says its size."""
    shrunk = rows["model"].isin(MODELS) & ~paper_scale(rows) & rows["hidden"].notna()
    size = rows["layers"].astype("string") + " layers, hidden " + rows["hidden"].astype("string")
    return rows["model"].where(~shrunk, rows["model"] + " shrunk to " + size).astype("string")


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
