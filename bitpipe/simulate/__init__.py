"""Simulation: an event engine over the runtime's own programs, and a cluster cost model."""

from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.engine import Trace, simulate, trace
from bitpipe.simulate.memory import Memory, Verdict
from bitpipe.simulate.predict import Prediction, predict
from bitpipe.simulate.units import simulate_units

__all__ = [
    "Calibration",
    "CostModel",
    "Memory",
    "Prediction",
    "Trace",
    "Verdict",
    "predict",
    "simulate",
    "simulate_units",
    "trace",
]
