"""Where a number comes from: code, libraries, hardware. Never paths, accounts or secrets."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bitpipe import __version__
from experiments.cell import CLOCKS, Cell

ROOT = Path(__file__).resolve().parents[2]
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
    """Git revision and whether tracked files differ from it; None where git cannot tell.

    A snapshot without ``.git`` says its revision in ``BITPIPE_REVISION`` (with ``+dirty``).
    """
    told = os.environ.get("BITPIPE_REVISION")
    if told:
        return told.removesuffix("+dirty"), told.endswith("+dirty")
    try:
        revision = _git("rev-parse", "HEAD").strip()
        return revision, bool(_git("status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.SubprocessError):
        return None, None


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


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=10
    ).stdout
