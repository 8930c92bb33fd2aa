"""Several measurements of a block's cells, put together: means, intervals, paired ratios.

Within one pool of ranks or one allocation the cells of a block take turns, iteration by iteration;
a repeat is such a rotation from the first iteration to the last, on freshly built models, and
every second repeat visits the cells in reversed order. What two cells of one repeat have in common
(the nodes, the hour, the neighbours) drops out of their ratio, so ratios are formed per repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean, median, stdev
from typing import Any

CONFIDENCE = 0.95
MEANS = ("samples_per_s", "iteration_seconds", "bubble_ratio")


def combined(repeats: Sequence[Mapping[str, Any]], *, measured: int, measurement: str) -> dict[str, Any]:
    """The metrics of a cell from those of its repeats.

    Args:
        repeats: metrics of each, in order.
        measured: how many iterations at the end of each count.
        measurement: names the rotation that the block's cells shared; only cells that have it in
            common can be paired.

    Returns:
        The metrics of a single repeat as they are. Else those of the last one, with
        ``iterations_seconds`` of all repeats in turn, means over repeats of :data:`MEANS`,
        spread over all counted iterations, and of the throughput its extremes and t-interval over repeats.
    """
    if len(repeats) == 1:
        return dict(repeats[0])
    seconds = [list(one["iterations_seconds"]) for one in repeats]
    counted = list(chain.from_iterable(one[-measured:] for one in seconds))
    rates = [one["samples_per_s"] for one in repeats]
    low, high = t_interval(rates)
    metrics = {
        **repeats[-1],
        **{name: fmean(one[name] for one in repeats) for name in MEANS},
        "iteration_seconds_median": median(counted),
        "iteration_seconds_min": min(counted),
        "iteration_seconds_max": max(counted),
        "iterations_seconds": list(chain.from_iterable(seconds)),
        "repeats": len(repeats),
        "measurement": measurement,
        "samples_per_s_min": min(rates),
        "samples_per_s_max": max(rates),
        "samples_per_s_low": low,
        "samples_per_s_high": high,
    }
    for name in ("lag_seconds", "late_share"):
        if name in metrics:
            metrics[name] = max(one[name] for one in repeats)
    return metrics


def count(metrics: Mapping[str, Any]) -> int:
    """How often a record's cell was measured."""
    return int(metrics.get("repeats") or 1)


def rates(metrics: Mapping[str, Any], measured: int) -> list[float]:
    """Samples/s of every repeat, in order; empty where a time is unknown.

    Args:
        metrics: of a record.
        measured: how many iterations at the end of each repeat count.
    """
    times, batch = metrics.get("iterations_seconds") or [], metrics.get("global_batch")
    each = len(times) // count(metrics)
    if not each or not batch or None in times:
        return []
    starts = range(0, each * count(metrics), each)
    return [batch / fmean(times[start : start + each][-measured:]) for start in starts]


def paired_ratio(
    one: Mapping[str, Any], other: Mapping[str, Any], measured: int, confidence: float = CONFIDENCE
) -> tuple[float, float, float] | None:
    """Throughput of ``one`` over that of ``other``, formed per repeat: mean and t-interval.

    None unless the same ranks measured both, more than once, in one rotation.
    """
    ratios = _ratios(one, other, measured)
    return (fmean(ratios), *t_interval(ratios, confidence)) if ratios else None


def paired_spread(one: Mapping[str, Any], other: Mapping[str, Any], measured: int) -> float | None:
    """Standard deviation over repeats of the same ratio, relative to its mean; None as there."""
    ratios = _ratios(one, other, measured)
    return stdev(ratios) / fmean(ratios) if ratios else None


def repeats_for_equality(spread: float, margin: float, error: float = 0.05) -> int:
    """How many repeats show two equal cells to be equal, nine times in ten.

    Args:
        spread: standard deviation of their ratio over repeats, relative.
        margin: how far from 1 the ends of the ratio's interval may lie, relative.
        error: one-sided, of each end.

    Returns:
        The smallest n with (t + z)·spread/√n ≤ margin, t and z the quantiles of Student's distribution
        with n−1 degrees of freedom and of the normal one: the usual size of a trial of equivalence
        with two one-sided tests. 1001 where 1000 would not do.
    """
    from scipy.special import ndtri, stdtrit

    for n in range(2, 1001):
        if float(stdtrit(n - 1, 1 - error) + ndtri(0.95)) * spread <= margin * n**0.5:
            return n
    return 1001


def _ratios(one: Mapping[str, Any], other: Mapping[str, Any], measured: int) -> list[float]:
    """The ratio in every repeat; empty unless there are two or more that both cells share."""
    if not one.get("measurement") or one["measurement"] != other.get("measurement"):
        return []
    pairs = zip(rates(one, measured), rates(other, measured), strict=False)
    ratios = [a / b for a, b in pairs]
    return ratios if len(ratios) > 1 else []


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Student's interval of the mean of two or more positive values; not below 0."""
    from scipy.special import stdtrit

    middle, freedom = fmean(values), len(values) - 1
    quantile = float(stdtrit(freedom, (1 + confidence) / 2))
    reach = quantile * stdev(values) / len(values) ** 0.5
    return max(0.0, middle - reach), middle + reach
