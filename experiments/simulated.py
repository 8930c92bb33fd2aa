"""A cell on the cost model: no ranks, the same for ever."""

from __future__ import annotations

from experiments.block import Block
from experiments.cell import Cell
from experiments.record import Record


def simulate(cell: Cell, block: Block) -> Record:
    """Predict one cell and write its record."""
    raise NotImplementedError
