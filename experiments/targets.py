"""What a cell's ranks compute on."""

from __future__ import annotations

from bitpipe.errors import InputError, choose
from bitpipe.runtime.target import Target
from experiments.cell import Cell

KEYS = ("transport", "compile")


def target_of(cell: Cell) -> Target:
    """GPUs for ``cuda``, with the cell's options; else CPUs.

    Raises:
        InputError: an option is unknown, or GPUs cannot be used so.
    """
    if cell.backend != "cuda":
        return Target()
    options = {key: value for key, value in cell.options.items() if key != "global_batch"}
    for key in options:
        choose("backend.options", key, KEYS)
    target = Target(device="cuda", **{key: str(value) for key, value in options.items()})
    if target.compile != "none" and cell.job.schedule.split_backward:
        raise InputError("backend.options.compile", target.compile, "a compiled backward cannot be split")
    return target
