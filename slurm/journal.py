"""What happened inside one job, one JSON line per event, readable while it runs.

Events: ``start`` (restart, nodes), ``begin`` (cell, attempt), ``end`` (cell, attempt, status,
taken: by Slurm), ``interrupted`` (signal, reason), ``preflight`` (verdict), ``finish``.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.records.store import NotWritten


@dataclass(frozen=True)
class Journal:
    """The journal of a job; see :class:`slurm.folder.SweepFolder` for where it lies."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "journal.jsonl"

    def write(self, event: str, **facts: Any) -> None:
        """Append one event, at once.

        Raises:
            NotWritten: the file system refuses.
        """
        line = json.dumps({"time": time.time(), "event": event, **facts}) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise NotWritten(self.path, error.strerror or str(error)) from error

    def refresh(self) -> None:
        """Make a network file system look whether the journal is there: it remembers that it was not."""
        with contextlib.suppress(OSError):
            list(self.folder.iterdir())

    def events(self) -> list[dict[str, Any]]:
        """Every event so far; a half-written line is left out."""
        try:
            lines = self.path.read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def finished(self) -> bool:
        """The job, or :mod:`slurm.settle` after it, has said that nothing more will come."""
        events = self.events()
        return bool(events) and events[-1]["event"] == "finish"

    def nodes(self) -> str:
        """Where the job last started, empty if it never did."""
        starts = [event for event in self.events() if event["event"] == "start"]
        return str(starts[-1].get("nodes", "")) if starts else ""

    def ended(self) -> dict[str, str]:
        """Cell → status of its last attempt that ended in this job."""
        return {e["cell"]: e["status"] for e in self.events() if e["event"] == "end"}

    def open(self) -> dict[str, int]:
        """Cell → attempt, for attempts that began in this job and have not ended."""
        attempts: dict[str, int] = {}
        for event in self.events():
            if event["event"] == "begin":
                attempts[event["cell"]] = event["attempt"]
            elif event["event"] == "end" and attempts.get(event["cell"]) == event["attempt"]:
                del attempts[event["cell"]]
        return attempts

    def attempts(self) -> dict[str, int]:
        """Cell → its newest attempt in this job."""
        return {e["cell"]: e["attempt"] for e in self.events() if e["event"] in ("begin", "end")}

    def taken(self) -> set[str]:
        """Cells whose last attempt Slurm took away, so that the job, once requeued, runs them again."""
        last = {e["cell"]: e for e in self.events() if e["event"] == "end"}
        return {cell for cell, event in last.items() if event.get("taken")}
