"""Intervals from resampled makespans, and ratios of cells that were resampled together."""

from __future__ import annotations

from math import exp, log
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from experiments.running.bootstrap import BETWEEN_RUNS, bootstrap_ratio, interval


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
    found = bootstrap_ratio(one, other)
    assert found is not None
    ratio, low, high = found
    assert ratio == pytest.approx(1.1)
    drift = NormalDist().inv_cdf(0.975) * BETWEEN_RUNS * log(1.1)  # what is left
    assert (low, high) == pytest.approx((1.1 * exp(-drift), 1.1 * exp(drift)), rel=1e-5)


def test_cells_whose_time_is_the_same_in_every_resample_are_equal_exactly() -> None:
    one, other = cell(1.0, [0.9, 1.1]), cell(1.0, [0.9, 1.1])
    assert bootstrap_ratio(one, other) == (1.0, 1.0, 1.0)


def test_a_ratio_counts_samples() -> None:
    one, other = cell(1.0, [1.0, 1.0], batch=16), cell(1.0, [1.0, 1.0])
    assert bootstrap_ratio(one, other) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("other", [cell(1.0, [1.0, 1.1], "n"), {"iteration_seconds": 1.0, "global_batch": 8}])
def test_cells_that_were_not_resampled_together_have_no_such_ratio(other: dict[str, Any]) -> None:
    assert bootstrap_ratio(cell(1.0, [1.0, 1.1]), other) is None
    assert bootstrap_ratio(other, cell(1.0, [1.0, 1.1])) is None
