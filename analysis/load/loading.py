"""One results folder, all its frames."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.load.cache import Cache
from analysis.load.rank_logs import read_rank_log
from analysis.load.reading import Reading
from analysis.load.records import cell_row, device_rows, read_record
from analysis.load.schema import CELLS, DEVICES, PROBLEMS, STEPS, conform
from analysis.load.sweeps import experiment_rows, read_sweeps
from experiments.records.record import FINISHED

_RANK_LOG = re.compile(r"cells/(\w+)/a(\d+)/rank(\d+)\.jsonl$")
RUNNING_S = 120.0  # a log written in the last two minutes belongs to a run that still runs


@dataclass(frozen=True)
class Loaded:
    """Frames of :mod:`analysis.load.schema`.

    Attributes:
        readings: per path (relative to the results folder, or a run's address) what was read:
            documents are records.
        sweeps: one row per experiment, sweep and cell asked for, newest sweep first; without
            manifests (wandb) what the records themselves say.
        source: ``records``, ``wandb-offline`` or ``wandb-online``.
        own_steps: the step rows that came with the readings, with their ``path``.
        unfinished: cell → (path, state) for attempts that left no record.
        found: problems met besides those of ``readings`` and ``logs``.
    """

    readings: Mapping[str, Reading]
    sweeps: pd.DataFrame
    source: str
    own_steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    root: Path | None = None
    unfinished: Mapping[str, tuple[str, str]] | None = None
    found: tuple[tuple[str, str], ...] = ()

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Every cell once: its newest finished attempt, else its newest."""
        rows = [
            {**cell_row(reading.document), "source": self.source, "path": path}
            for path, reading in self.readings.items()
            if reading.document is not None
        ]
        cells = conform(pd.DataFrame(rows), CELLS)
        finished = cells["status"].isin([status.value for status in FINISHED])
        cells = cells.assign(finished=finished).sort_values(["cell", "finished", "attempt"])
        cells = cells.drop_duplicates("cell", keep="last").drop(columns="finished")
        return cells.reset_index(drop=True)

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per attempt and rank, with every per-device vector of the record."""
        documents = (reading.document for reading in self.readings.values())
        rows = [row for document in documents if document for row in device_rows(document)]
        return conform(pd.DataFrame(rows), DEVICES, extra=True)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per attempt, rank and step, with all that was logged."""
        steps = self.logs[1] if self.source == "records" else self.own_steps
        if steps.empty:
            return conform(pd.DataFrame(), STEPS)
        places = {path: _place(path, one.document) for path, one in {**self.readings, **self.logs[0]}.items()}
        known = pd.DataFrame.from_dict(places, orient="index", columns=["cell", "attempt", "rank"])
        paths = steps["path"]
        more = {str(name): paths.map(known[name]) for name in known if name not in steps}
        return conform(steps.assign(**more), STEPS, extra=True)

    @cached_property
    def logs(self) -> tuple[Mapping[str, Reading], pd.DataFrame]:
        """The rank logs of a results folder and their steps; none for wandb, whose files hold theirs."""
        if self.source != "records" or self.root is None:
            return {}, pd.DataFrame()
        paths = sorted(self.root.glob("cells/*/a*/rank*.jsonl"))
        return Cache(self.root, "ranks").read(paths, read_rank_log)

    @property
    def problems(self) -> pd.DataFrame:
        """Every file or part that was left out, and why (rank logs once :attr:`steps` were asked for)."""
        readings = dict(self.readings)
        if "logs" in self.__dict__:
            readings |= self.logs[0]
        rows = [(path, problem) for path, reading in readings.items() for problem in reading.problems]
        rows += self.found
        rows += [(path, f"no record: {state}") for path, state in (self.unfinished or {}).values()]
        return conform(pd.DataFrame(rows, columns=list(PROBLEMS)), PROBLEMS)

    def experiment(self, id: str, *, every_model: bool = False) -> pd.DataFrame:
        """The cells of an experiment; see :meth:`analysis.load.results.Results.experiment`."""
        rows = experiment_rows(self.sweeps, self.cells, id, every_model=every_model)
        for cell, (_, state) in (self.unfinished or {}).items():
            if rows.empty:
                break
            rows.loc[(rows["cell"] == cell) & (rows["status"] == "missing"), "status"] = state
        return rows


def sound(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """The readings, without documents that fit the schema and still make no row of the frames."""
    try:
        _cells([one.document for one in readings.values() if one.document is not None])
        return dict(readings)
    except Exception:  # whatever some of them hold: each alone shows which
        return {path: _alone(one) for path, one in readings.items()}


def _alone(reading: Reading) -> Reading:
    if reading.document is None:
        return reading
    try:
        _cells([reading.document])
        return reading
    except Exception as error:
        line = str(error).splitlines() or [""]
        return Reading(problems=[*reading.problems, f"skipped: {type(error).__name__}: {line[0]}"])


def _cells(documents: list[dict[str, Any]]) -> pd.DataFrame:
    devices = [row for document in documents for row in device_rows(document)]
    conform(pd.DataFrame(devices), DEVICES, extra=True)
    return conform(pd.DataFrame([cell_row(document) for document in documents]), CELLS)


def load(root: Path) -> Loaded:
    """Read the records below ``root``."""
    readings, _ = Cache(root, "records").read(sorted(root.glob("cells/*/a*/record.json")), read_record)
    readings = sound(readings)
    sweeps, problems = read_sweeps(root)
    return Loaded(
        readings=readings,
        sweeps=sweeps,
        source="records",
        root=root,
        unfinished=_unfinished(root, readings),
        found=tuple(problems),
    )


def _unfinished(root: Path, readings: Iterable[str]) -> dict[str, tuple[str, str]]:
    known = {str(Path(path).parent) for path in readings}
    found = {}
    for folder in sorted(root.glob("cells/*/a*")):
        name = str(folder.relative_to(root))
        if name in known or not folder.is_dir():
            continue
        newest = max((path.stat().st_mtime for path in [folder, *folder.iterdir()]), default=0.0)
        state = "running" if time.time() - newest < RUNNING_S else "crashed"
        found[folder.parent.name] = (name, state)
    return found


def _place(path: str, document: Mapping[str, Any] | None) -> tuple[Any, Any, Any]:
    """(cell, attempt, rank) of a log, as far as they are known."""
    if document is not None:
        return document["cell"], document["attempt"], None
    place = _RANK_LOG.search(path)
    return (place[1], int(place[2]), int(place[3])) if place else (None, None, None)
