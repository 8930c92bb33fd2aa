"""``scale=fit``: the same cells with models that the user's devices can hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bitpipe.errors import choose
from bitpipe.models import ModelConfig
from bitpipe.simulate.shrink import shrink
from experiments.cell import Cell

SCALES = ("fit",)


def sizes(cells: Iterable[Cell], scale: str) -> dict[ModelConfig, ModelConfig]:
    """For every model of ``cells``, all of them possible, the largest sibling with which all fit.

    Raises:
        InputError: another ``scale`` than ``fit``, or nothing fits.
    """
    choose("scale", scale, SCALES)
    of_model: dict[ModelConfig, list[Cell]] = {}
    for cell in cells:
        of_model.setdefault(cell.job.model, []).append(cell)
    return {
        model: shrink(list(dict.fromkeys(cell.job for cell in mine)), mine[0].cluster)
        for model, mine in of_model.items()
    }


def resized(cell: Cell, siblings: dict[ModelConfig, ModelConfig]) -> Cell:
    """The cell with its model's sibling; a cell whose model has none stays."""
    model = siblings.get(cell.job.model, cell.job.model)
    return replace(cell, job=replace(cell.job, model=model))
