"""Where records lie, and the only place that writes them.

``<results>/cells/<cell>/a<attempt>/record.json``. A record is written beside its final name
and moved there, so a reader sees a whole document or none. An attempt's folder is claimed by
creating it, so two sweeps at once never share one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitpipe.files import replacing
from bitpipe.schedule.timeline import Timeline
from experiments.records.migrate import migrate
from experiments.records.record import FINISHED, Record, RecordError


def short(name: str, limit: int = 60) -> str:
    """A name as one path component that any file system takes."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:limit] or "sweep"


class NotWritten(OSError):
    """The disk is full, or the folder is none that can be written to: one line that names the file."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"results: {path} cannot be written ({reason})")


def write_json(path: Path, document: Any) -> None:
    """Write strict JSON atomically, creating folders as needed.

    Raises:
        NotWritten: the file system refuses; nothing half-written is left.
        ValueError: the document holds NaN or Infinity.
    """
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text atomically, creating folders as needed.

    Raises:
        NotWritten: the file system refuses; nothing half-written is left.
    """
    try:
        with (
            replacing(path) as half,
            half.open("w", encoding="utf-8", errors="surrogateescape") as file,
        ):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotWritten(path, error.strerror or str(error)) from error


@dataclass(frozen=True)
class Store:
    """The records below one results folder."""

    root: Path

    def cell(self, cell: str) -> Path:
        return self.root / "cells" / cell

    def attempt(self, cell: str, attempt: int) -> Path:
        """The folder of one attempt."""
        return self.cell(cell) / f"a{attempt}"

    def attempts(self, cell: str) -> list[int]:
        """Every attempt that was begun, in order, finished or not."""
        names = (path.name for path in self.cell(cell).glob("a*") if path.is_dir())
        return sorted(int(name[1:]) for name in names if name[1:].isdigit())

    def claim(self, cell: str) -> int:
        """Begin a new attempt: create its folder and return its number.

        Raises:
            NotWritten: the file system refuses.
        """
        try:
            return self._claim(cell)
        except OSError as error:
            raise NotWritten(self.cell(cell), error.strerror or str(error)) from error

    def _claim(self, cell: str) -> int:
        self.cell(cell).mkdir(parents=True, exist_ok=True)
        attempt = max(self.attempts(cell), default=0) + 1
        while True:
            try:
                self.attempt(cell, attempt).mkdir()
            except FileExistsError:  # another sweep was faster
                attempt += 1
            else:
                return attempt

    def write(self, record: Record) -> Path:
        """Write a record atomically; returns its path.

        Raises:
            RecordError: it does not fit the schema.
            NotWritten: the file system refuses.
        """
        path = self.attempt(record.cell, record.attempt) / "record.json"
        write_json(path, record.document())
        return path

    def write_timeline(self, record: Record, timeline: Timeline) -> str:
        """Write one iteration's timeline beside a record; returns its file name."""
        path = self.attempt(record.cell, record.attempt) / "timeline.json"
        write_text(path, json.dumps(timeline.document(), separators=(",", ":"), allow_nan=False) + "\n")
        return path.name

    def read(self, cell: str, attempt: int) -> Record | None:
        """The record of one attempt; None if there is none, or none that can be read."""
        try:
            return read_record(self.attempt(cell, attempt) / "record.json")
        except (OSError, RecordError):
            return None

    def latest(self, cell: str) -> Record | None:
        """The record of the newest attempt that has one."""
        return next(self._newest_first(cell), None)

    def finished(self, cell: str, suits: Callable[[Record], object] = bool) -> Record | None:
        """The newest record that makes running ``cell`` again needless (ok, oom), of those that suit."""
        finished = (record for record in self._newest_first(cell) if record.status in FINISHED)
        return next(filter(suits, finished), None)

    def best(self, cell: str) -> Record | None:
        """What a table shows: the newest finished record, else the newest of all."""
        return self.finished(cell) or self.latest(cell)

    def cells(self) -> list[str]:
        """Ids of all cells that have a folder."""
        return sorted(path.name for path in (self.root / "cells").glob("*") if path.is_dir())

    def _newest_first(self, cell: str) -> Iterator[Record]:
        for attempt in reversed(self.attempts(cell)):
            record = self.read(cell, attempt)
            if record is not None:
                yield record


def read_record(path: Path) -> Record:
    """Read one record file, of this or an older version.

    Raises:
        OSError: there is no such file.
        RecordError: it is not JSON, not a record, or was changed after it was written.
    """
    try:
        document = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RecordError(f"{path}: not JSON ({error})") from error
    if not isinstance(document, Mapping):
        raise RecordError(f"{path}: not a JSON object")
    return Record.of(migrate(document))
