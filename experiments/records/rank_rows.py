"""The ranks' own logs of an attempt, reduced to one row per iteration."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any


def reduced_rows(folder: Path) -> list[dict[str, Any]]:
    """Per iteration: what is equal on all ranks as it is, else minimum, mean and maximum.

    Lines before a rank's last ``start`` belong to an earlier try of the block and are left out,
    as is a last line that was cut off.
    """
    values: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("rank*.jsonl")):
        for line in _last_try(path):
            if line.get("event") != "iteration":
                continue
            for name, value in line.items():
                if name not in ("event", "time", "rank", "iteration") and isinstance(value, (int, float)):
                    values[line["iteration"]][name].append(value)
    return [_reduced(values[iteration]) for iteration in sorted(values)]


def _reduced(columns: dict[str, list[float]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, values in columns.items():
        if min(values) == max(values):
            row[name] = values[0]
        else:
            row |= {f"{name}/min": min(values), f"{name}/mean": fmean(values), f"{name}/max": max(values)}
    return row


def _last_try(path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if line.get("event") == "start":
            lines = []
        lines.append(line)
    return lines
