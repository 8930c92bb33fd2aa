"""What a cell's ranks compute on."""

from __future__ import annotations

from bitpipe.errors import InputError, choose
from bitpipe.runtime.target import Target
from experiments.cell import Cell

OPTIONS = {"cuda": ("transport", "compile"), "emulate": ("stage_forward_ms",)}
"""What can be asked of a backend."""


def target_of(cell: Cell) -> Target:
    """GPUs for ``cuda``, with the cell's options; else CPUs.

    Raises:
        InputError: an option is unknown, or GPUs cannot be used so.
    """
    options = cell.backend_options
    known = OPTIONS.get(cell.backend)
    for key in options:
        if known is None:
            raise InputError("backend.options", key, f"backend={cell.backend} has none")
        choose("backend.options", key, known)
    if cell.backend != "cuda":
        return Target()
    target = Target(device="cuda", **{key: str(value) for key, value in options.items()})
    if target.compile != "none" and cell.job.schedule.split_backward:
        raise InputError("backend.options.compile", target.compile, "a compiled backward cannot be split")
    return target
