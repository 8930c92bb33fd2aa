"""How sure a virtual time is, and the ratio of two: intervals from resampled makespans.

All cells of a block are resampled together: the n-th makespan of each comes from the same resample of
measured iterations, so what two cells have in common drops out of the ratio of their n-th makespans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, hypot, log
from statistics import NormalDist, stdev
from typing import Any

CONFIDENCE = 0.95
DRAWS = 100
"""Resamples; the standard deviation that they give is itself known to 7 %."""

BETWEEN_RUNS = 0.02
"""Standard deviation between runs of a ratio's logarithm, as a share of it: chosen, not derived.

Two pairs of runs on a busy machine (simulator_vs_virtual_before_1.csv and _before_2.csv in results/bench)
had ratios outside each other's interval while this was 0: iterations of one run cannot show what drifts
between runs. In the first pair the logarithms of five ratios were 2.1 to 2.5 % apart and that of 1F1B-Int
9 %, which this value does not cover; in the second at most 2.2 %. The pair in simulator_vs_virtual.csv was
run after it was set, and has 1F1B-Int at 5 %."""
AS_PRINTED = 5e-5
"""Ratios are printed to 0.01 %; two that vary at all are not told apart below."""


def interval(
    value: float, draws: Sequence[float], confidence: float = CONFIDENCE, between: float = 0.0
) -> tuple[float, float]:
    """``value`` and its bootstrap standard error, in logarithms (Efron & Tibshirani 1993, chapter 13).

    Args:
        value: the estimate.
        draws: of it, from resampled iterations.
        confidence: of the interval.
        between: a standard deviation, in logarithms, that the draws cannot show.
    """
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * hypot(stdev(map(log, draws)), between)
    return value * exp(-reach), value * exp(reach)


def bootstrap_ratio(
    one: Mapping[str, Any], other: Mapping[str, Any], confidence: float = CONFIDENCE
) -> tuple[float, float, float] | None:
    """Throughput of ``one`` over that of ``other`` per sample, with its interval.

    Args:
        one, other: metrics of two records.
        confidence: of the interval.

    Returns:
        ratio, low, high; None unless both were resampled together.
    """
    mine, theirs = (metrics.get("bootstrap_seconds") for metrics in (one, other))
    if not (mine and theirs) or one.get("measurement") != other.get("measurement"):
        return None
    batches = one["global_batch"] / other["global_batch"]
    ratio = batches * other["iteration_seconds"] / one["iteration_seconds"]
    draws = [batches * b / a for a, b in zip(mine, theirs, strict=True)]
    drift = BETWEEN_RUNS * log(ratio) if min(mine) < max(mine) else 0.0
    between = hypot(drift, AS_PRINTED) if min(draws) < max(draws) else drift
    return ratio, *interval(ratio, draws, confidence, between)
