"""A sweep's manifest: which cells it asked for, and what it calls them.

``<results>/sweeps/<experiment>/<stamp>.json``. Cells know nothing of experiments, because two
figures may share one; the manifest is where an experiment says which cells are its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from experiments.composing.sweep import Sweep
from experiments.records.provenance import code
from experiments.records.record import plain
from experiments.records.store import NotWritten, short, write_json

SCHEMA = 1


def manifest_path(sweep: Sweep) -> Path:
    return sweep.settings.results / "sweeps" / short(sweep.experiment) / f"{sweep.stamp}.json"


def write_manifest(sweep: Sweep) -> Path:
    """Write it before the first cell runs; returns its path.

    Raises:
        InputError: it cannot be written, and so no record could.
    """
    path = manifest_path(sweep)
    try:
        write_json(path, _document(sweep))
    except NotWritten as error:
        raise InputError(
            "results", sweep.settings.results, f"cannot be written to: {error.reason}"
        ) from error
    return path


def _document(sweep: Sweep) -> dict[str, Any]:
    revision, dirty = code()
    return {
        "schema": SCHEMA,
        "experiment": sweep.experiment,
        "title": sweep.title,
        "stamp": sweep.stamp,
        "launcher": sweep.settings.launcher,
        "revision": revision,
        "dirty": dirty,
        "cells": [
            {
                "cell": point.cell.id,
                "backend": point.cell.backend,
                "labels": plain(dict(point.cell.labels)),
                "overrides": list(point.overrides),
                "refusal": str(point.refusal) if point.refusal else None,
            }
            for point in sweep.points
        ],
    }
