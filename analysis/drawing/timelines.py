"""Timelines that records carry, as panels to draw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.results import NoResults, Results
from bitpipe.draw import Panel
from bitpipe.errors import InputError
from bitpipe.schedule import Placement, ScheduleSpec, Timeline, placement_of


def document(results: Results, row: pd.Series) -> Mapping[str, Any]:
    """The record behind a row of :meth:`Results.experiment`.

    Raises:
        InputError: the row has none, or did not end ok; says why.
    """
    reading = results.loaded.readings.get(str(row["path"]))
    if reading is None or reading.document is None or row["status"] != "ok":
        reason = row["reason"] if isinstance(row["reason"], str) else "no finished record"
        raise InputError("cell", row["cell"], f"{row['status']}: {reason}", "run its experiment again")
    found: Mapping[str, Any] = reading.document
    return found


def timeline(results: Results, row: pd.Series) -> Timeline:
    """One iteration of a row's cell.

    Raises:
        InputError: its record has no timeline, or that file cannot be read.
    """
    name = document(results, row)["timeline"]
    path = results.root / Path(str(row["path"])).parent / str(name)
    if name is None or not path.is_file():
        raise InputError("timeline", row["path"], "the record has none", "timelines are only below results/")
    try:
        return Timeline.of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise InputError("timeline", path, f"not a timeline: {type(error).__name__}: {error}") from None


def spec(record: Mapping[str, Any]) -> ScheduleSpec:
    """What the record's schedule was generated from."""
    return ScheduleSpec(**record["identity"]["job"]["schedule"])


def placement(results: Results, row: pd.Series) -> Placement:
    """Where the stages of a row's cell are."""
    return placement_of(spec(document(results, row)))


def panel(results: Results, row: pd.Series, title: str) -> Panel:
    """A row's timeline, ready to draw; see :meth:`bitpipe.draw.Panel.of_ranks`."""
    vectors = document(results, row)["devices"]
    return Panel.of_ranks(
        timeline(results, row),
        placement(results, row),
        title,
        replicas=vectors["replica"],
        devices=vectors["device"],
    )


def by_origin(results: Results, id: str) -> list[tuple[str, pd.DataFrame]]:
    """An experiment's finished cells, apart by origin: they never share a picture.

    Raises:
        NoResults: none of its cells is finished.
    """
    rows = results.experiment(id)
    rows = rows[rows["status"] == "ok"]
    if rows.empty:
        raise NoResults(results.root, id)
    return [(str(origin), group) for origin, group in rows.groupby("origin", sort=True)]
