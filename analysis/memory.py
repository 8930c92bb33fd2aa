"""Peak memory as a distribution over devices, and how even it is."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Peak memory of some cells.

    Attributes:
        devices: one row per cell and rank, the cell's keys beside ``peak_memory_bytes``.
        summary: one row per cell: minimum, mean, maximum (GiB), (max − min)/mean and the
            coefficient of variation over its devices.
    """

    devices: pd.DataFrame
    summary: pd.DataFrame


def balance(cells: pd.DataFrame, devices: pd.DataFrame, keys: list[str]) -> Balance:
    """Join ``cells`` with their devices and describe each cell's distribution; see :class:`Balance`."""
    known = cells[[*keys, "cell", "attempt", "status"]].dropna(subset=["attempt"])
    joined = known.merge(devices, on=["cell", "attempt"], suffixes=("", "_device"))
    joined = joined.dropna(subset=["peak_memory_bytes"])
    grouped = joined.groupby([*keys, "cell"], sort=False)["peak_memory_bytes"]
    summary = pd.DataFrame(
        {
            "devices": grouped.size(),
            "min_gib": grouped.min() / GIB,
            "mean_gib": grouped.mean() / GIB,
            "max_gib": grouped.max() / GIB,
            "spread_over_mean": (grouped.max() - grouped.min()) / grouped.mean(),
            "coefficient_of_variation": grouped.std(ddof=0) / grouped.mean(),
        }
    )
    return Balance(devices=joined, summary=summary.reset_index())
