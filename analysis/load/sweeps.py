"""Which cells an experiment asked for, and which of them belong into one table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from experiments.cell import ORIGINS

CONF = Path(__file__).parents[2] / "conf"

COLUMNS = ["experiment", "sweep", "cell", "origin"]
MODEL = ("model", "layers", "hidden", "sequence", "cluster")
"""What makes results of one experiment stand beside each other instead of replacing each other."""
_NUMBERS = ("depth", "micro_batches", "width", "micro_batch_size")


SETTINGS = frozenset({
    "method", "model", "cluster", "backend", "calibration", "data", "depth", "width", "micro_batch_size",
    "micro_batches", "global_batch", "scale", "iterations", "measured", "precision", "learning_rate",
    "clip_norm", "seed",
})  # fmt: skip
"""Top-level settings that determine a result; sweeps that differ in others ask for the same point."""
_SHAPE = frozenset({"method", "depth", "width", "micro_batch_size", "micro_batches", "global_batch"})


@cache
def own_keys(experiment: str) -> frozenset[str] | None:
    """The settings that an experiment of ``conf/experiment`` varies itself; None for one's own experiment."""
    path = CONF / "experiment" / f"{experiment}.yaml"
    if not re.fullmatch(r"\w+", experiment) or not path.is_file():
        return None
    sweeper = (yaml.safe_load(path.read_text(encoding="utf-8")).get("hydra") or {}).get("sweeper") or {}
    keys = {*(sweeper.get("params") or {}), *(key for one in sweeper.get("points") or () for key in one)}
    return frozenset(map(str, keys))


def _extra(experiment: str, settings: Mapping[str, str]) -> str:
    """What a point was given beyond what its experiment varies: ``seed=1, width=2``."""
    own = own_keys(experiment)
    if own is None:
        return ""
    given = {key.lstrip("+"): value for key, value in settings.items()}
    top = {key: key.partition(".")[0] for key in given}
    return ", ".join(
        f"{key}={given[key]}"
        for key in sorted(given)
        if top[key] in SETTINGS and key != "backend" and key not in own
    )


def _shape(extra: str) -> str:
    return ", ".join(part for part in extra.split(", ") if re.split(r"[.=]", part)[0] in _SHAPE)


class NoManifest(ValueError):
    """A file that is none, or cannot be read; one line says why."""


def read_manifest(path: Path) -> dict[str, Any]:
    """A sweep's manifest (:mod:`experiments.records.manifest`), every entry of which makes a row.

    Raises:
        NoManifest: whatever else the file is.
    """
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for entry in manifest["cells"]:
            _row(manifest["experiment"], path.stem, entry)
            if not (isinstance(manifest["experiment"], str) and isinstance(entry["cell"], str)):
                raise TypeError("experiment and cell are names")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoManifest((repr(error).splitlines() or [""])[0]) from error
    return manifest


def read_sweeps(root: Path) -> tuple[pd.DataFrame, list[tuple[str, str]]]:
    """All manifests below ``root``, newest first, and what was wrong with some."""
    rows: list[dict[str, Any]] = []
    problems = []
    for path in sorted(root.glob("sweeps/*/*.json"), key=lambda path: path.stem, reverse=True):
        try:
            manifest = read_manifest(path)
        except NoManifest as error:
            problems.append((str(path.relative_to(root)), f"not a sweep's manifest, skipped: {error}"))
        else:
            rows += [_row(manifest["experiment"], path.stem, cell) for cell in manifest["cells"]]
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
    # The numbers are in the cell, and a manifest has them only where its command line named them.
    same = [name for name in asked if name not in ("sweep", "extra", *_NUMBERS)]
    asked = asked.drop_duplicates(same).dropna(axis="columns", how="all")
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
    """The newest sweep and what completes it; of one that varies a further setting its first value.

    ``not_shown`` then says which others there are.
    """
    newest = rows["sweep"] == rows["sweep"].max()
    extra = rows["extra"].fillna("") if "extra" in rows else pd.Series("", rows.index)
    values = list(dict.fromkeys(extra[newest]))
    shown = newest & extra.eq(values[0])
    contexts = set(rows.loc[shown, "context"].dropna())
    older = ~newest & extra.map(_shape).eq(_shape(values[0]))
    same = older & rows["context"].isin(contexts) if contexts else shown
    kept: pd.DataFrame = rows[shown | same]
    others = "; ".join(values[1:])
    told = f"shown is {values[0] or 'the default'}, not {others or 'the default'}" if values[1:] else pd.NA
    return kept.assign(not_shown=pd.array([told] * len(kept), dtype="string"))


def _row(experiment: str, sweep: str, cell: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(text.split("=", 1) for text in cell.get("overrides") or () if "=" in text)
    facts = {key: int(settings[key]) for key in _NUMBERS if settings.get(key, "").isdigit()}
    origin = ORIGINS[cell["backend"]].value
    extra = _extra(experiment, settings)
    return (
        {"experiment": experiment, "sweep": sweep, "cell": cell["cell"], "origin": origin, "extra": extra}
        | facts
        | dict(cell["labels"])
    )
