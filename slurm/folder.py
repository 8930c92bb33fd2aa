"""The folder of one submitted sweep: everything that status, logs, cancel and collect need, later.

``<results>/slurm/<experiment>/<stamp>/``::

    sweep.json   what was asked: cells, blocks, code, site
    blocks.json  the blocks themselves, for requeue
    jobs.jsonl   one line per job, appended the moment its id is known
    code/        the snapshot that the jobs run;  dirty.diff
    jobs/        submitit's files, and one folder per job with one folder per rank
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from experiments.records.store import NotWritten, short, write_json
from experiments.running.block import Block
from slurm import blocks_file
from slurm.plan import Request


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """One job: a line of ``jobs.jsonl``.

    Attributes:
        job: Slurm's id, ``123_4`` for a member of an array.
        block: index of the block in the sweep.
        kind: ``block``, or ``canary``: a short run that must pass before the rest starts.
        cells: ids of the cells that this job is to run.
        request: its resources.
        submitted: seconds since the epoch.
    """

    job: str
    block: int
    kind: str
    cells: tuple[str, ...]
    request: Request
    submitted: float


@dataclass(frozen=True)
class SweepFolder:
    """Reads and writes one sweep's folder."""

    path: Path

    @classmethod
    def create(cls, results: Path, experiment: str, stamp: str) -> SweepFolder:
        """A new folder of its own; a second sweep of the same moment gets another name.

        Raises:
            NotWritten: the file system refuses.
        """
        base = results / "slurm" / short(experiment)
        try:
            return cls._create(base, stamp)
        except OSError as error:
            raise NotWritten(base, error.strerror or str(error)) from error

    @classmethod
    def _create(cls, base: Path, stamp: str) -> SweepFolder:
        base.mkdir(parents=True, exist_ok=True)
        number = 0
        while True:
            path = base / (stamp if not number else f"{stamp}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                number += 1
                continue
            (path / "jobs").mkdir()
            return cls(path)

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def jobs_folder(self) -> Path:
        return self.path / "jobs"

    @property
    def results(self) -> Path:
        return self.path.parents[2]

    @property
    def name(self) -> str:
        """For people; unique below one results folder."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def arguments(self) -> str:
        """As ``python -m slurm COMMAND`` takes it, from where this process was started."""
        usual = self.results == Path("results").resolve()
        return self.name if usual else f"{self.name} --results {shlex.quote(str(self.results))}"

    def job(self, id: str) -> Path:
        """Folder of one job: progress, outcome, one folder per rank."""
        return self.jobs_folder / id

    # ---- written once

    def describe(self, blocks: Sequence[Block], facts: Mapping[str, Any]) -> None:
        """Keep what was asked for."""
        blocks_file.write(self.path, blocks)
        cells = [
            {"id": cell.id, "name": str(cell), "block": index}
            for index, block in enumerate(blocks)
            for cell in block.cells
        ]
        write_json(self.path / "sweep.json", {**facts, "cells": cells})

    @cached_property
    def facts(self) -> dict[str, Any]:
        """``sweep.json``."""
        facts: dict[str, Any] = json.loads((self.path / "sweep.json").read_text())
        return facts

    @property
    def names(self) -> dict[str, str]:
        """Cell id → what people call it, in order."""
        return {cell["id"]: cell["name"] for cell in self.facts["cells"]}

    def blocks(self) -> list[Block]:
        """The blocks as they were submitted.

        Raises:
            InputError: they cannot be read, or were changed.
        """
        return blocks_file.read(self.path)

    # ---- appended

    def append(self, jobs: Sequence[Submitted]) -> None:
        """Note submitted jobs at once, so that nothing that runs is unknown.

        Raises:
            NotWritten: the file system refuses.
        """
        lines = "".join(json.dumps(asdict(job)) + "\n" for job in jobs)
        path = self.path / "jobs.jsonl"
        try:
            with open(path, "a") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise NotWritten(path, error.strerror or str(error)) from error

    def jobs(self) -> list[Submitted]:
        """Every job, in order of submission; a half-written last line is left out."""
        path = self.path / "jobs.jsonl"
        found = []
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                values = json.loads(line)
            except json.JSONDecodeError:
                continue
            values["request"] = Request(**values["request"])
            values["cells"] = tuple(values["cells"])
            found.append(Submitted(**values))
        return found


def find(results: Path, wanted: str | None) -> SweepFolder:
    """A sweep by ``experiment/stamp``, stamp, experiment (its newest) or path; None is the newest.

    Raises:
        InputError: there is none.
    """
    if wanted and (Path(wanted) / "sweep.json").exists():
        return SweepFolder(Path(wanted).resolve())
    folders = [SweepFolder(path.parent.resolve()) for path in (results / "slurm").glob("*/*/sweep.json")]
    folders.sort(key=lambda folder: folder.path.name)
    for folder in reversed(folders):
        if not wanted or wanted in (folder.path.name, folder.path.parent.name, folder.name):
            return folder
    newest = f"newest: {folders[-1].name}" if folders else ""
    raise InputError("sweep", wanted or "latest", f"none below {results / 'slurm'}", newest)
