"""Intervals from resampled makespans, and ratios of cells that were resampled together."""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from experiments.running.bootstrap import bootstrap_ratio, interval


def cell(seconds: float, draws: list[float], measurement: str = "m", batch: int = 8) -> dict[str, Any]:
    return {
        "iteration_seconds": seconds,
        "bootstrap_seconds": draws,
        "measurement": measurement,
        "global_batch": batch,
    }


def test_the_interval_is_the_normal_one_in_logarithms() -> None:
    draws = [exp(value) for value in (-0.1, 0.0, 0.1)]
    reach = 0.1 * NormalDist().inv_cdf(0.975)
    assert interval(2.0, draws) == pytest.approx((2 * exp(-reach), 2 * exp(reach)))
    assert interval(2.0, draws, 0.5)[1] < interval(2.0, draws)[1] < interval(2.0, draws, 0.999)[1]


def test_what_two_cells_have_in_common_drops_out_of_their_ratio() -> None:
    draws = np.random.default_rng(0).normal(1.0, 0.2, 100)
    one, other = cell(1.0, list(draws)), cell(1.1, list(1.1 * draws))
    assert bootstrap_ratio(one, other) == pytest.approx((1.1, 1.1, 1.1))


def test_a_ratio_counts_samples() -> None:
    one, other = cell(1.0, [1.0, 1.0], batch=16), cell(1.0, [1.0, 1.0])
    assert bootstrap_ratio(one, other) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("other", [cell(1.0, [1.0, 1.1], "n"), {"iteration_seconds": 1.0, "global_batch": 8}])
def test_cells_that_were_not_resampled_together_have_no_such_ratio(other: dict[str, Any]) -> None:
    assert bootstrap_ratio(cell(1.0, [1.0, 1.1]), other) is None
    assert bootstrap_ratio(other, cell(1.0, [1.0, 1.1])) is None
