"""A user's own schedules go with the code: jobs read the text that the cells' ids were made from.

A file (``file:PATH``, wherever it lies) and a module (``module:function``, wherever Python found it:
beside the repository, on PYTHONPATH, ignored by git, behind a link) are copied into the snapshot. What
is installed into the interpreter stays where it is.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.schedule.own import FILE, copy_name, is_own
from experiments.cell import Cell
from experiments.running.block import Block
from slurm.plan import SCHEDULES
from slurm.snapshot import copy, refuse_secrets

MOST_BYTES = 20 << 20
"""A package that is larger is no schedule."""


def take_along(code: Path, blocks: Iterable[Block]) -> None:
    """Copy what the snapshot at ``code`` lacks.

    Raises:
        InputError: a text cannot be copied, or is no longer the one that the cells were made from.
        NotWritten: the file system refuses.
    """
    methods: dict[str, Cell] = {}
    for block in blocks:
        for cell in block.cells:
            if is_own(cell.job.schedule.method):
                methods.setdefault(cell.job.schedule.method, cell)
    for method, cell in methods.items():
        text = _file(method, code) if method.startswith(FILE) else _module(method, code)
        expected = cell.options.get("schedule")
        if text and expected and hashlib.sha256(text.read_bytes()).hexdigest()[:12] != expected:
            raise InputError(
                "method", method, "its text was changed while it was submitted", "type the command again"
            )


def _file(method: str, code: Path) -> Path:
    source = Path(method.removeprefix(FILE))
    target = code / SCHEDULES / copy_name(method)
    refuse_secrets({str(source): source})
    copy(source, target)
    return target


def _module(method: str, code: Path) -> Path | None:
    """The copy of a function's module; None where it is the interpreter's own.

    Raises:
        InputError: its source is no file.
    """
    name = method.partition(":")[0]
    found = find_spec(name)
    source = Path(found.origin or "") if found else Path()
    if not source.is_file():
        raise InputError("method", method, "jobs cannot take it along: its module is no file")
    if _installed(source):
        return None
    parts = name.split(".")
    inside = Path(*parts[:-1], source.name)
    if source.name == "__init__.py":
        inside = Path(*parts, source.name)
    top = source
    for _ in range(len(inside.parts) - 1):
        top = top.parent  # the package, or the folder of a namespace
    if not (code / inside).is_file():
        _tree(method, top, code / inside.parts[0])
    return code / inside


def _tree(method: str, top: Path, target: Path) -> None:
    """Copy a module or a package, but nothing that the snapshot has."""
    below = [path for path in top.rglob("*") if path.is_file()] if top.is_dir() else [top]
    below = [path for path in below if "__pycache__" not in path.parts]
    size = sum(path.stat().st_size for path in below)
    if size > MOST_BYTES:
        raise InputError(
            "method",
            method,
            f"{top} holds {size >> 20} MiB, too much to take along",
            "give it a folder of its own",
        )
    refuse_secrets({str(path): path for path in below})
    for path in below:
        at = target / path.relative_to(top) if top.is_dir() else target
        if not at.exists():
            copy(path, at)


def _installed(source: Path) -> bool:
    places = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return any(source.resolve().is_relative_to(Path(place).resolve()) for place in places if place)
