"""Which cells an experiment asked for, and which of them belong into one table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.cell import ORIGINS

COLUMNS = ["experiment", "sweep", "cell", "origin"]
MODEL = ("model", "layers", "hidden", "sequence", "cluster")
"""What makes results of one experiment stand beside each other instead of replacing each other."""
_NUMBERS = ("depth", "micro_batches", "width", "micro_batch_size")


def read_sweeps(root: Path) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """All manifests below ``root``, newest first, and what was wrong with some."""
    rows: list[dict[str, Any]] = []
    problems = []
    for path in sorted(root.glob("sweeps/*/*.json"), key=lambda path: path.stem, reverse=True):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            rows += [_row(manifest["experiment"], path.stem, cell) for cell in manifest["cells"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            line = (repr(error).splitlines() or [""])[0]
            problems.append((str(path.relative_to(root)), f"not a sweep's manifest, skipped: {line}"))
    return pd.DataFrame(rows, columns=None if rows else COLUMNS), problems


def sweeps_of_records(documents: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """What the records say where there are no manifests (wandb): each one's own experiment."""
    rows = [
        {
            "experiment": one["experiment"],
            "sweep": one["started"],
            "cell": one["cell"],
            "origin": one["origin"],
        }
        | dict(one["labels"])
        for one in sorted(documents, key=lambda one: str(one["started"]), reverse=True)
    ]
    return pd.DataFrame(rows, columns=None if rows else COLUMNS)


def experiment_rows(
    sweeps: pd.DataFrame, cells: pd.DataFrame, id: str, *, every_model: bool = False
) -> pd.DataFrame:
    """The cells of experiment ``id``, with its labels as columns.

    Of each origin the newest sweep counts, and of older sweeps those cells that share all its
    settings but the compared ones: a sweep over part of the grid completes an older one, and a
    sweep of another model replaces it, or with ``every_model`` stands beside it: of each origin,
    model and cluster the newest sweep then counts. A cell without a record has status ``missing``.
    """
    asked = sweeps[sweeps["experiment"] == id]
    if asked.empty:
        return asked
    asked = asked.drop_duplicates([c for c in asked if c != "sweep"]).dropna(axis="columns", how="all")
    known = cells.drop(columns=["labels", "experiment"])
    rows = asked.merge(known, on="cell", how="left", suffixes=("_label", ""))
    for name in [name for name in known if f"{name}_label" in rows]:  # a label says a known fact
        rows[name] = rows[name].fillna(rows.pop(f"{name}_label"))
    rows["status"] = rows["status"].fillna("missing")
    keys = ["origin"]
    if "cluster" in rows:  # what did not end well was tried where its sweep ran
        for name in ("cluster", "device_name"):
            tried = rows[name].where(rows["origin"].ne("measured") | rows["status"].eq("ok"))
            ran = tried.groupby([rows["origin"], rows["sweep"]]).transform("first")
            rows[name] = tried.fillna(ran).fillna(rows[name])
    if every_model and set(MODEL) <= set(rows):
        # A cell without a record is of the model that its sweep has a record of.
        rows[list(MODEL)] = rows[list(MODEL)].fillna(
            rows.groupby(["origin", "sweep"])[list(MODEL)].transform("first")
        )
        keys += MODEL
    kept = [_newest(group) for _, group in rows.groupby(keys, sort=False, dropna=False)]
    together: pd.DataFrame = pd.concat(kept, ignore_index=True)
    return together


def _newest(rows: pd.DataFrame) -> pd.DataFrame:
    newest = rows["sweep"] == rows["sweep"].max()
    contexts = set(rows.loc[newest, "context"].dropna())
    same = rows["context"].isin(contexts) if contexts else newest
    kept: pd.DataFrame = rows[newest | same]
    return kept


def _row(experiment: str, sweep: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(text.split("=", 1) for text in cell.get("overrides") or () if "=" in text)
    facts = {key: int(settings[key]) for key in _NUMBERS if settings.get(key, "").isdigit()}
    origin = ORIGINS[cell["backend"]].value
    return (
        {"experiment": experiment, "sweep": sweep, "cell": cell["cell"], "origin": origin}
        | facts
        | dict(cell["labels"])
    )
