"""Makes the expected results (``results/reference/``) of a results folder: small, and nothing else in it.

Of every experiment and origin the newest sweep is kept, of every cell its newest finished record, and the
table of readings (:mod:`experiments.sensitivity`).
Timelines are kept where there is no hardware in them (the drawings of schedules need them); rank
logs, wandb's files and the timelines of predictions are left out.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from analysis.load.results import Results
from analysis.load.sweeps import NoManifest, read_manifest
from bitpipe.errors import InputError
from experiments.cell import ORIGINS
from experiments.composing.config import ADHOC
from experiments.records.record import SHOWN
from experiments.sensitivity import FILE as SENSITIVITY


def make(results: Path, reference: Path) -> int:
    """Write the reference anew; returns how many records it holds.

    Raises:
        InputError: a cell that a sweep asked for has no finished record, or a sweep's manifest is damaged.
    """
    kept = _newest(results)
    loaded = Results(results).loaded
    known = {str(row["cell"]): row for row in loaded.cells.to_dict("records")}
    wanted = dict.fromkeys(cell["cell"] for manifest in kept.values() for cell in manifest["cells"])
    for cell in wanted:
        status = known[cell]["status"] if cell in known else "missing"
        if status not in SHOWN:
            raise InputError("reference", cell, f"no finished record ({status})", "run its experiment again")
    if reference.exists():
        shutil.rmtree(reference)
    for cell in wanted:
        source = results / str(known[cell]["path"])
        target = reference / str(known[cell]["path"])
        target.parent.mkdir(parents=True, exist_ok=True)
        document = loaded.readings[str(known[cell]["path"])].document
        assert document is not None
        timeline = document["timeline"]
        unit = (document["identity"]["calibration"] or {}).get("name") == "unit"
        target.write_text(json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")
        if unit and timeline and (source.parent / timeline).exists():
            shutil.copy(source.parent / timeline, target.parent / timeline)
    for path, manifest in kept.items():
        target = reference / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
    if (results / SENSITIVITY).exists():
        shutil.copy(results / SENSITIVITY, reference / SENSITIVITY)
    return len(wanted)


def _newest(results: Path) -> dict[Path, dict[str, Any]]:
    """Per path below the results the manifest: of every experiment and origin the newest."""
    found: dict[tuple[str, str], tuple[Path, dict[str, Any]]] = {}
    for path in sorted(results.glob("sweeps/*/*.json"), key=lambda path: path.stem):
        try:
            manifest = read_manifest(path)
        except NoManifest as error:
            raise InputError("results", path, f"not a sweep's manifest: {error}") from None
        if manifest["experiment"] == ADHOC or not manifest["cells"]:
            continue
        origin = ORIGINS[manifest["cells"][0]["backend"]].value
        found[manifest["experiment"], origin] = path.relative_to(results), manifest
    if not found:
        raise InputError("results", results, "holds no sweep of an experiment", "make reproduce")
    return dict(found.values())
