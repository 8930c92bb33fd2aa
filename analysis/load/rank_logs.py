"""Every rank's own line-flushed log, ``rank<k>.jsonl``: one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.load.reading import Reading
from analysis.load.wandb_offline import steps_frame

NAMES = ("event", "rank")


def read_rank_log(path: Path) -> Reading:
    """Read one rank's log: its iterations since it last started.

    Lines that are no JSON objects are counted and left out; a log without an ``end`` event is
    named, which also shows a cut between two lines.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        return Reading(problems=[f"not readable, skipped: {error.strerror}"])
    if not data:
        return Reading(problems=["empty file"])
    rows: list[dict[str, Any]] = []
    bad, ended = 0, False
    lines = data.split(b"\n")
    cut = lines.pop()  # empty where the last line is whole
    for line in lines:
        try:
            row = json.loads(line)
            event = row["event"]
        except (ValueError, TypeError, KeyError, RecursionError):
            bad += 1
            continue
        if event == "start":
            rows, ended = [], False
        ended |= event == "end"
        if event == "iteration":
            rows.append({key: row[key] for key in row if key not in NAMES})
    problems = []
    if cut:
        problems.append(f"cut inside its last line ({len(cut)} bytes left out)")
    if bad:
        problems.append(f"{bad} of {len(lines)} lines are no events, left out")
    if not ended:
        problems.append(f"no end event: {len(rows)} iterations kept")
    return Reading(steps=steps_frame(rows, "iteration"), problems=problems)
