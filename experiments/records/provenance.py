"""Where a number comes from: code, libraries, hardware. Never paths, accounts or secrets."""

from __future__ import annotations

import os
import platform
import socket
import sys
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bitpipe import __version__
from experiments.cell import CLOCKS, Cell
from experiments.records.revision import revision_of

LIBRARIES = ("torch", "numpy", "hydra-core", "submitit", "wandb", "tokenizers")


def provenance(cell: Cell, launcher: str, **more: Any) -> dict[str, Any]:
    """The record's ``provenance`` for a cell that this process runs."""
    revision, dirty = code()
    return {
        "backend": cell.backend,
        "clock": CLOCKS[cell.backend],
        "launcher": launcher,
        "revision": revision,
        "dirty": dirty,
        "versions": versions(),
        "hardware": hardware(),
        "hosts": [socket.gethostname()],
        "seed": cell.job.seed,
        "calibration": asdict(cell.calibration) if cell.calibration else None,
        **more,
    }


@cache
def code() -> tuple[str | None, bool | None]:
    """The code's revision and whether it differs from that; None where nothing tells.

    Where git ought to tell and cannot, says so, once.
    """
    found = revision_of()
    if found.problem:
        print(f"warning: records name no revision of the code: {found.problem}", file=sys.stderr, flush=True)
    return found.revision, found.dirty


@cache
def versions() -> dict[str, str]:
    """Versions of Python, this package and the libraries that can change a result."""
    found = {"python": platform.python_version(), "bitpipe": __version__}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def hardware() -> dict[str, Any]:
    """Processor, usable cores and memory of this machine."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "memory_bytes": pages}
