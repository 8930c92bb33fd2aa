"""A fixed piece of work that tells how fast this core is just now.

A shared machine changes its speed by tens of percent from one moment to the next, and processor
time changes with it. What an operation takes in terms of work of the same kind, done just
before it, does not.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from bitpipe.models.config import ModelConfig
from bitpipe.models.layer import Layer

_MODEL = ModelConfig(
    name="yardstick", family="bert", layers=1, heads=4, hidden=64, sequence=32, vocabulary=1, dropout=0.1
)
_READINGS = 31


class Yardstick:
    """One small transformer layer, forward: dispatch, matrix products and random bits in a chunk's mixture.

    Attributes:
        usual: seconds that all ranks take as its normal duration.
    """

    def __init__(self) -> None:
        self._layer = Layer(_MODEL, 1, seed=0, dtype=torch.float32, device=torch.device("cpu"))
        self._x = torch.zeros(1, _MODEL.sequence, _MODEL.hidden)
        readings = [self.read() for _ in range(_READINGS)]
        self.usual = statistics.median(readings)

    def agree(self) -> None:
        """Make :attr:`usual` the mean over all ranks, which ask together: then they count in one unit."""
        usual = torch.tensor([self.usual], dtype=torch.float64)
        dist.all_reduce(usual)
        self.usual = usual.item() / dist.get_world_size()

    def pace(self) -> float:
        """This core's speed just now; 1 is the usual one."""
        return self.usual / self.read()

    @torch.no_grad()
    def read(self) -> float:
        """Seconds of this thread that one pass takes now."""
        begun = time.thread_time()
        self._layer(self._x, 0, 0)
        return time.thread_time() - begun
