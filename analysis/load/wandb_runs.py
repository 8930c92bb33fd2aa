"""wandb runs, offline or online, to the same frames as records.

The sink puts a cell's whole record under the summary key :data:`RECORD`, so a table made from
wandb equals the one made from ``results/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.load.cache import Cache
from analysis.load.loading import RUNNING_S, Loaded
from analysis.load.reading import Reading
from analysis.load.sweeps import sweeps_of_records
from analysis.load.wandb_offline import read_offline
from experiments.record import RecordError, check

RECORD = "record"


def load_offline(root: Path) -> Loaded:
    """Read every ``run-*.wandb`` below ``root``."""
    paths = sorted(path for path in root.rglob("run-*.wandb") if not path.is_symlink())
    runs = Cache(root, "wandb").read(paths, read_offline)
    return _loaded(runs, "wandb-offline", lambda path: (root / path).stat().st_mtime)


def load_online(project: str) -> Loaded:
    """Read every run of ``entity/project`` through the wandb API.

    Raises:
        InputError: the server cannot be reached or knows no such project.
    """
    from analysis.load.wandb_online import read_online

    return _loaded(read_online(project), "wandb-online", lambda _: 0.0)


def _loaded(runs: Mapping[str, Reading], source: str, written: Callable[[str], float]) -> Loaded:
    readings = {}
    for path, reading in runs.items():
        problems = list(reading.problems)
        record = None
        if reading.document is not None:
            record = _record(reading.document, problems)
            if reading.document["exit_code"] is None:
                state = reading.document.get("state")
                state = state or ("running" if time.time() - written(path) < RUNNING_S else "crashed")
                problems.append(f"no exit record: {state}; {len(reading.steps)} rows of steps kept")
        readings[path] = Reading(document=record, steps=reading.steps, problems=problems)
    documents = [reading.document for reading in readings.values() if reading.document]
    return Loaded(readings=readings, sweeps=sweeps_of_records(documents), source=source)


def _record(run: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    record = run["summary"].get(RECORD)
    if record is None:
        problems.append("no record in its summary; only its steps are kept")
        return None
    try:
        check(record)
    except (RecordError, AttributeError) as error:
        problems.append(f"its record is left out: {str(error).splitlines()[0]}")
        return None
    return dict(record)
