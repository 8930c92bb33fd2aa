"""A fixed piece of work that tells how fast this core is just now.

A shared machine changes its speed by tens of percent from one moment to the next, and processor
time changes with it. What an operation takes in terms of work of the same kind, done just
before it, does not. Times in that unit can also be set beside those of another hour or machine.
"""

from __future__ import annotations

import time

import torch

from bitpipe.models.config import ModelConfig
from bitpipe.models.layer import Layer

_MODEL = ModelConfig(
    name="yardstick", family="bert", layers=1, heads=4, hidden=64, sequence=32, vocabulary=1, dropout=0.1
)
UNIT = 5e-4
"""Seconds that one pass counts as: a convention, near what a core of a shared server takes."""


class Yardstick:
    """One small transformer layer, forward: dispatch, matrix products, random bits, mixed as in a chunk."""

    def __init__(self) -> None:
        self._layer = Layer(_MODEL, 1, seed=0, dtype=torch.float32, device=torch.device("cpu"))
        self._x = torch.zeros(1, _MODEL.sequence, _MODEL.hidden)
        self.read()  # the first pass allocates

    def pace(self) -> float:
        """This core's speed just now; 1 if a pass takes :data:`UNIT`."""
        return UNIT / self.read()

    @torch.no_grad()
    def read(self) -> float:
        """Seconds of this thread that one pass takes now."""
        begun = time.thread_time()
        self._layer(self._x, 0, 0)
        return time.thread_time() - begun
