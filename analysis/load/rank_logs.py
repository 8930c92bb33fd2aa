"""Every rank's own line-flushed log, ``rank<k>.jsonl``: one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.load.reading import Reading
from analysis.load.wandb_offline import steps_frame

_STEP = ("step", "iteration")


def read_rank_log(path: Path) -> Reading:
    """Read one rank's log; lines that are no JSON objects are counted and left out."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return Reading(problems=[f"not readable, skipped: {error.strerror}"])
    rows: list[dict[str, Any]] = []
    bad = 0
    lines = data.split(b"\n")
    cut = lines.pop()  # empty where the last line is whole
    for line in lines:
        try:
            row = json.loads(line)
            step = next((row[key] for key in _STEP if key in row), None)
        except (ValueError, TypeError, RecursionError):
            bad += 1
            continue
        if isinstance(step, int) and isinstance(row, dict):
            rows.append({"step": step} | {key: value for key, value in row.items() if key not in _STEP})
    problems = []
    if cut:
        problems.append(f"cut inside its last line ({len(cut)} bytes left out)")
    if bad:
        problems.append(f"{bad} of {len(lines)} lines are no JSON objects, left out")
    if not data:
        problems.append("empty file")
    return Reading(steps=steps_frame(rows), problems=problems)
