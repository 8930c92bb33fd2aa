"""Beside Table 6: what an iteration puts on the links, by kind, link class and mapping (C20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.labels import ORIGINS, variant
from analysis.drawing.output import Table
from analysis.memory import GIB
from bitpipe.origin import Origin

ID = "traffic"
TITLE = "Table 6's runs: bytes per iteration by kind, link and mapping"
CELL = ["origin", "model", "cluster", "depth", "width", "micro_batches", "global_batch", "variant", "layout"]
COLUMNS = [*CELL, "kind", "link", "messages", "bytes"]
_NOTES = (
    "GiB that all ranks together send in one iteration; a ring all-reduce of n ranks moves 2(n−1) times its "
    "buffer, and crosses nodes with as many of its n hops as it has nodes.",
    "Counted from the program and the layout, so a run and a prediction of the same cell agree in messages.",
)


def traffic_tables(rows: pd.DataFrame) -> tuple[Table, ...]:
    """The table, if the records say what was sent (those of older versions do not)."""
    frame = tidy(rows)
    return () if frame.empty else (Table(name=ID, title=TITLE, frame=frame, grid=layout(frame)),)


def tidy(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, kind and link class, with :data:`COLUMNS`; sync is empty where it is local."""
    found: list[dict[str, Any]] = []
    for row in rows.to_dict("records"):
        metrics = row["metrics"] if isinstance(row["metrics"], Mapping) else {}
        counts = metrics.get("traffic_messages") or {}
        for name, total in sorted((metrics.get("traffic_bytes") or {}).items()):
            kind, _, link = name.partition("/")
            about = {column: row[column] for column in CELL}
            found.append(
                {**about, "kind": kind, "link": link, "messages": counts.get(name), "bytes": float(total)}
            )
    return pd.DataFrame(found, columns=COLUMNS)


def layout(frame: pd.DataFrame) -> Grid:
    """A block per origin, model and depth; a line per N and variant; kinds and links in columns."""
    columns = sorted(
        {(str(kind), str(link)) for kind, link in zip(frame["kind"], frame["link"], strict=True)}
    )
    blocks = []
    for (origin, model, depth), part in frame.groupby(["origin", "model", "depth"], sort=False):
        lines = []
        for (count, name, mapping), cell in part.groupby(["micro_batches", "variant", "layout"], sort=False):
            sent = {(row["kind"], row["link"]): row["bytes"] for row in cell.to_dict("records")}
            values = [f"{sent[key] / GIB:.3g}" if key in sent else "–" for key in columns]
            lines.append(entries([str(count), variant(str(name)).name, str(mapping), *values]))
        title = f"{ORIGINS[Origin(str(origin))].name}: {model}, D={depth}"
        blocks.append(Block(title=title, rows=tuple(lines)))
    header = ("N", "variant", "mapping", *(f"{kind}, {link}".replace("_", " ") for kind, link in columns))
    return Grid(header=header, blocks=tuple(blocks), notes=_NOTES, text_columns=3)
