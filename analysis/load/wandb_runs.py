"""wandb runs, offline or online, to the same frames as records.

The sink (:mod:`experiments.records.wandb_sink`) puts the identity, labels and provenance of a record
into a run's configuration, its metrics and per-device vectors into the summary; here they become
the record again, so that a table made from wandb equals the one made from ``results/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.cache import Cache
from analysis.load.loading import RUNNING_S, Loaded, sound
from analysis.load.reading import Reading
from analysis.load.sweeps import sweeps_of_records
from analysis.load.wandb_offline import read_offline
from experiments.records.record import SCHEMA, RecordError, check

IDENTITY = ("schema", "job", "cluster", "backend", "data", "calibration", "links", "options")
ABOUT = ("cell", "attempt", "experiment", "labels", "provenance", "started", "finished")


def load_offline(root: Path) -> Loaded:
    """Read every ``run-*.wandb`` below ``root``."""
    paths = sorted(path for path in root.rglob("run-*.wandb") if not path.is_symlink())
    runs, steps = Cache(root, "wandb").read(paths, read_offline)
    return _loaded(runs, steps, "wandb-offline", lambda path: (root / path).stat().st_mtime)


def load_online(project: str) -> Loaded:
    """Read every run of ``entity/project`` through the wandb API.

    Raises:
        InputError: the server cannot be reached or knows no such project.
    """
    from analysis.load.wandb_online import read_online

    runs = read_online(project)
    steps = [reading.steps.assign(path=path) for path, reading in runs.items()]
    together = pd.concat(steps, ignore_index=True) if steps else pd.DataFrame()
    return _loaded(runs, together, "wandb-online", lambda _: 0.0)


def _loaded(
    runs: Mapping[str, Reading], steps: pd.DataFrame, source: str, written: Callable[[str], float]
) -> Loaded:
    readings = {}
    for path, reading in runs.items():
        problems = list(reading.problems)
        record = None
        if reading.document is not None:
            try:
                record = record_of(reading.document)
            except (RecordError, TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
                line = (str(error).splitlines() or [type(error).__name__])[0]
                problems.append(f"no record, only steps kept: {line}")
            if reading.document["exit_code"] is None:
                state = reading.document.get("state")
                state = state or ("running" if time.time() - written(path) < RUNNING_S else "crashed")
                problems.append(f"no exit record: {state}; {reading.document['rows']} rows of steps kept")
        readings[path] = Reading(document=record, problems=problems)
    readings = sound(readings)
    documents = [reading.document for reading in readings.values() if reading.document]
    return Loaded(readings=readings, sweeps=sweeps_of_records(documents), source=source, own_steps=steps)


def record_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The record that a wandb run is a copy of; of a failure's cause only the message is left.

    Raises:
        RecordError: the run is none of this project's, or left no summary.
    """
    config, summary = run["config"], run["summary"]
    lacking = [name for name in (*IDENTITY, *ABOUT) if name not in config]
    if lacking:
        raise RecordError(f"its configuration lacks {lacking[0]}")
    if "status" not in summary:
        raise RecordError("its summary says no status")
    message = summary.get("cause")
    cause = {"kind": "told", "message": message, "rank": None, "traceback": None, "signal": None}
    record = {name: config[name] for name in ABOUT} | {
        "schema": SCHEMA,
        "seal": None,  # wandb turns whole floats into integers
        "status": summary["status"],
        "origin": summary.get("origin"),
        "identity": {name: config[name] for name in IDENTITY},
        "metrics": _below("metrics/", summary),
        "devices": _below("devices/", summary),
        "costs": config.get("costs") or [],
        "cause": cause if message is not None else None,
        "timeline": None,
        "wandb": {"state": "online" if run.get("state") else "offline"},
    }
    check(record)
    return record


def _below(prefix: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): summary[name] for name in summary if name.startswith(prefix)}
