"""A cell on the cost model: no ranks, the same for ever."""

from __future__ import annotations

from bitpipe.simulate.unit_calibration import UnitCalibration
from experiments.block import Block
from experiments.cell import Cell
from experiments.record import Record
from experiments.unit_costs import simulate_in_units


def simulate(cell: Cell, block: Block) -> Record:
    """Predict one cell and write its record."""
    if isinstance(cell.calibration, UnitCalibration):
        return simulate_in_units(cell, block)
    raise NotImplementedError
