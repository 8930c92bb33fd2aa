"""One results folder, all its frames."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.records import cell_row, device_rows
from analysis.load.schema import CELLS, DEVICES, PROBLEMS, conform
from experiments.record import FINISHED, RecordError
from experiments.store import read_record


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Frames of :mod:`analysis.load.schema`.

    Attributes:
        cells: every cell once: its newest finished attempt, else its newest.
        devices: one row per attempt and rank, with every per-device vector of the record.
        problems: every file that was left out, and why.
        sweeps: one row per experiment, sweep and cell asked for, newest sweep first.
    """

    cells: pd.DataFrame
    devices: pd.DataFrame
    problems: pd.DataFrame
    sweeps: pd.DataFrame

    def experiment(self, id: str) -> pd.DataFrame:
        """The cells of an experiment; see :meth:`analysis.results.Results.experiment`."""
        asked = self.sweeps[self.sweeps["experiment"] == id]
        cells = self.cells.drop(columns=["labels", "experiment"])
        rows = asked.merge(cells, on="cell", how="left", suffixes=("_label", ""))
        for name in [name for name in rows if f"{name}_label" in rows]:  # a label names a known fact
            rows[name] = rows[name].fillna(rows.pop(f"{name}_label"))
        rows["status"] = rows["status"].fillna("missing")
        return rows


def load(root: Path) -> Loaded:
    """Read everything below ``root``."""
    problems: list[dict[str, str]] = []
    rows: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    for path in sorted(root.glob("cells/*/a*/record.json")):
        name = str(path.relative_to(root))
        try:
            record = read_record(path)
        except (OSError, RecordError) as error:
            problems.append({"path": name, "problem": f"skipped: {error}"})
            continue
        rows.append({**cell_row(record), "source": "records", "path": name})
        devices.extend(device_rows(record))
    cells = conform(pd.DataFrame(rows), CELLS)
    finished = cells["status"].isin([status.value for status in FINISHED])
    cells = cells.assign(finished=finished).sort_values(["cell", "finished", "attempt"])
    cells = cells.drop_duplicates("cell", keep="last").drop(columns="finished")
    return Loaded(
        cells=cells.reset_index(drop=True),
        devices=conform(pd.DataFrame(devices), DEVICES, extra=True),
        problems=conform(pd.DataFrame(problems), PROBLEMS),
        sweeps=_sweeps(root, problems),
    )


def _sweeps(root: Path, problems: list[dict[str, str]]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for path in sorted(root.glob("sweeps/*/*.json"), reverse=True):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            for cell in manifest["cells"]:
                rows.append(
                    {
                        "experiment": path.parent.name,
                        "sweep": path.stem,
                        "cell": cell["cell"],
                        **cell["labels"],
                    }
                )
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(
                {"path": str(path.relative_to(root)), "problem": f"no sweep manifest, skipped: {error!r}"}
            )
    return pd.DataFrame(rows, columns=None if rows else ["experiment", "sweep", "cell"])
