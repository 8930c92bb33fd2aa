"""Beside Table 6: what a searched order gains over BitPipe's own within the same memory."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.comparing.ratio import ratio_of
from analysis.drawing.labels import ORIGINS, place
from analysis.drawing.output import Rendered, Table
from analysis.load.results import NoResults, Results
from analysis.memory import GIB
from analysis.registry import artefact
from analysis.remarks import remarks

ID = "table6_searched"
RERUN = f"python run.py +experiment={ID} -m"
TITLE = "Beside Table 6: a searched order against BitPipe's own"
SEARCHED, OWN = "searched", "full"
KEYS = ["origin", "model", "cluster", "depth", "micro_batches", "global_batch"]
_NOTE = (
    "Searched: BitPipe's placement and activation memory (D·Ma), another order; not in the paper. At N = D "
    "BitPipe's unit is already the best order without transfer costs, so nothing is gained there. "
    "Equal: within 0.5%. Undecided: single runs, or the interval of the ratio over repeats reaches further."
)


@artefact(ID, title=TITLE)
def table6_searched(results: Results) -> Rendered:
    """Throughput and peak memory of both orders, per origin, and the gain."""
    ours = results.experiment(ID)
    frame = tidy(ours)
    if frame.empty:
        raise NoResults(results.root, f"{ID} with a method that it compares", RERUN)
    return Rendered(tables=(_table(frame),), notes=remarks(ours))


def searched_tables(results: Results) -> tuple[Table, ...]:
    """The table, if there are records for it: Table 6 shows it below its own."""
    rows = results.loaded.experiment(ID)
    frame = tidy(rows) if not rows.empty else rows
    return () if frame.empty else (_table(frame),)


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per origin and point: samples/s of both orders, the gain in percent, peak memory."""
    found: list[dict[str, Any]] = []
    for key, group in rows.groupby(KEYS, dropna=False):
        records: list[Any] = group.to_dict("records")
        by = {str(row["variant"]): row for row in records}
        if SEARCHED not in by or OWN not in by:
            continue
        searched, own = _rate(by[SEARCHED]), _rate(by[OWN])
        ratio = ratio_of(by[SEARCHED], by[OWN]) if searched and own else None
        found.append(
            {
                **dict(zip(KEYS, key, strict=True)),
                "bitpipe_samples_per_s": own,
                "searched_samples_per_s": searched,
                "gain_percent": ratio and 100 * (ratio.value - 1),
                "gain_low_percent": ratio and (None if ratio.exact else 100 * (ratio.low - 1)),
                "gain_high_percent": ratio and (None if ratio.exact else 100 * (ratio.high - 1)),
                "verdict": ratio and ratio.verdict,
                "bitpipe_peak_memory_bytes": by[OWN]["peak_memory_bytes"],
                "searched_peak_memory_bytes": by[SEARCHED]["peak_memory_bytes"],
                "status": by[SEARCHED]["status"],
                "cell": by[SEARCHED]["cell"],
            }
        )
    frame = pd.DataFrame(found)
    if frame.empty:
        return frame
    order = {origin.value: place for place, origin in enumerate(ORIGINS)}
    frame = frame.assign(_o=frame["origin"].map(order)).sort_values(["_o", "depth", "micro_batches"])
    return frame.drop(columns="_o").reset_index(drop=True)


def _rate(row: dict[Any, Any]) -> float | None:
    value = row["samples_per_s"]
    return float(value) if row["status"] == "ok" and pd.notna(value) else None


def _table(frame: pd.DataFrame) -> Table:
    blocks = []
    for (origin, model, cluster), rows in frame.groupby(["origin", "model", "cluster"], sort=False):
        lines = tuple(_line(row) for row in rows.to_dict("records"))
        blocks.append(Block(title=f"{origin}: {model} on {place(str(origin), str(cluster))}", rows=lines))
    header = (
        "D",
        "N",
        "BitPipe, samples/s",
        "searched, samples/s",
        "gain",
        "peak, BitPipe",
        "peak, searched",
    )
    grid = Grid(header=header, blocks=tuple(blocks), notes=(_NOTE,), text_columns=0)
    return Table(name=ID, title=TITLE, frame=frame, grid=grid)


def _doubt(row: dict[Any, Any]) -> str:
    return f" ({row['verdict']})" if row["verdict"] in ("equal", "undecided") else ""


def _line(row: dict[Any, Any]) -> Any:
    rates = (row["bitpipe_samples_per_s"], row["searched_samples_per_s"])
    gain, peaks = row["gain_percent"], (row["bitpipe_peak_memory_bytes"], row["searched_peak_memory_bytes"])
    return entries(
        [
            int(row["depth"]),
            int(row["micro_batches"]),
            *("–" if pd.isna(rate) else f"{rate:.2f}" for rate in rates),
            str(row["status"]) if pd.isna(gain) else f"{gain:+.2f} %{_doubt(row)}",
            *("–" if pd.isna(peak) else f"{peak / GIB:.2f} GiB" for peak in peaks),
        ]
    )
