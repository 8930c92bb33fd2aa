"""A user of the test cluster: someone at a shell, with results and a site file of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from experiments.records.record import Record
from experiments.records.store import Store
from slurm.folder import SweepFolder, find

ROOT = Path(__file__).resolve().parents[2]
TWO_RANKS = ("depth=2", "micro_batches=2", "method=bitpipe", "model.layers=4")
"""The smallest cell."""

PATIENCE_S = 280.0
"""How long a test waits for what must happen; only a broken test waits so long."""


@dataclass
class User:
    """Someone at a shell of the test cluster, with results and a site file of their own."""

    results: Path
    site: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def settings(self, **values: object) -> None:
        """Write the site file."""
        base = {"mem_per_cpu": "900M", "minutes_per_cell": 2, "startup_minutes": 2}
        self.site.write_text(yaml.safe_dump({**base, **values}))

    def command(self, *overrides: str) -> list[str]:
        fixed = [f"results={self.results}", f"site={self.site}", "wandb.mode=disabled", "allow_dirty=true"]
        tiny = ["+experiment=table6_ablation", "backend=virtual", "model=bert_tiny"]
        return [sys.executable, str(ROOT / "run.py"), *tiny, *fixed, "-m", *overrides]

    def run(
        self, *overrides: str, timeout: float = PATIENCE_S, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """``python run.py`` of the tiny ablation with more overrides, to its end."""
        return subprocess.run(
            self.command(*overrides),
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **variables},
        )

    def start(self, *overrides: str, **variables: str) -> subprocess.Popen[str]:
        """The same, in the background."""
        process = subprocess.Popen(
            self.command(*overrides),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def slurm(self, *arguments: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """``python -m slurm``, to its end."""
        command = [sys.executable, "-m", "slurm", *arguments, "--results", str(self.results)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)

    def slurm_start(self, *arguments: str) -> subprocess.Popen[str]:
        """``python -m slurm`` in the background."""
        command = [sys.executable, "-m", "slurm", *arguments, "--results", str(self.results)]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, text=True, cwd=ROOT, start_new_session=True, **both)
        self.processes.append(process)
        return process

    @property
    def folder(self) -> SweepFolder:
        """The newest sweep's."""
        return find(self.results, None)

    def records(self, cell: str) -> list[Record]:
        """Every attempt's record of a cell, in order."""
        store = Store(self.results)
        found = (store.read(cell, attempt) for attempt in store.attempts(cell))
        return [record for record in found if record is not None]

    def cell_of_seed(self, seed: int) -> str:
        """The cell of the newest sweep with that seed."""
        for block in self.folder.blocks():
            for cell in block.cells:
                if cell.job.seed == seed:
                    return cell.id
        raise LookupError(seed)

    def job_of(self, cell: str) -> str:
        return next(job.job for job in self.folder.jobs() if cell in job.cells)

    def logged(self, cell: str, event: str) -> bool:
        """One of its ranks has written that event."""
        logs = (self.results / "cells" / cell).glob("a*/rank*.jsonl")
        return any(f'"event": "{event}"' in log.read_text() for log in logs)


def wait_for(what: Callable[[], object], *, seconds: float = PATIENCE_S, why: str = "") -> float:
    """Wait until ``what()`` is true; returns how long that took."""
    begin = time.monotonic()
    while not what():
        took = time.monotonic() - begin
        assert took < seconds, f"not within {seconds:.0f} s: {why or what}"
        time.sleep(0.2)
    return time.monotonic() - begin
