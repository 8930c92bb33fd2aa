"""torch's own runtime executes the schedules that we export, and finds our gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch_runtime import gradient_difference

from bitpipe.runtime.processes.pool import Pool


@pytest.mark.parametrize(
    ("method", "per_rank", "split"),
    [("gpipe", 1, False), ("dapple", 1, False), ("1f1b_int", 2, False), ("1f1b_int", 2, True)],
)
def test_gradients_are_equal(pool_of: Callable[[int], Pool], method: str, per_rank: int, split: bool) -> None:
    worst = pool_of(2).call(gradient_difference, method, per_rank, split, 4)
    assert worst <= 1e-4  # of fp32 gradients, relative to the largest element
