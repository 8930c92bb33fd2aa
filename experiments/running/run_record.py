"""What a run on ranks says in its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bitpipe.runtime.result import RunResult
from experiments.cell import Cell
from experiments.running.attempt import traffic_metrics


def metrics_of(result: RunResult) -> dict[str, Any]:
    """Metrics of one run, timed by its own clock."""
    return {
        "samples_per_s": result.samples_per_s,
        "iteration_seconds": result.mean_seconds,
        **iteration_metrics(result.seconds, result.job.measured),
        **step_metrics(result),
        **rest_metrics(result),
    }


def iteration_metrics(seconds: Sequence[float], measured: int) -> dict[str, Any]:
    """Of every iteration's seconds, the last ``measured`` of which count."""
    counted = seconds[-measured:]
    return {
        "iteration_seconds_median": median(counted),
        "iteration_seconds_min": min(counted),
        "iteration_seconds_max": max(counted),
        "iterations_seconds": list(seconds),
    }


def step_metrics(result: RunResult) -> dict[str, Any]:
    """What training itself gives, step by step; nothing where nothing is computed."""
    metrics: dict[str, Any] = {}
    if result.origin == "emulated":
        return metrics
    metrics["losses"] = list(result.losses)
    if result.norms:
        metrics["gradient_norms"] = list(result.norms)
    if result.reports[0].skipped:
        metrics["skipped_steps"] = result.reports[0].skipped
    return metrics


def rest_metrics(result: RunResult) -> dict[str, Any]:
    """Of the last iteration: who waited, what went over the links."""
    return {
        "global_batch": result.job.global_batch,
        "bubble_ratio": result.timeline().bubble_ratio,
        **traffic_metrics(result.traffic),
    }


def devices_of(cell: Cell, result: RunResult) -> dict[str, list[Any]]:
    """One entry per global rank."""
    layout, vectors = cell.layout, {name: list(values) for name, values in result.vectors.items()}
    held = [values for name, values in vectors.items() if name.endswith("_bytes")]
    if held:
        vectors["peak_memory_bytes"] = [sum(parts) for parts in zip(*held, strict=True)]
    if "peak_activation_bytes" in vectors:
        vectors["activation_bytes"] = vectors.pop("peak_activation_bytes")
    return {
        "replica": [replica for replica, _ in layout.places],
        "device": [device for _, device in layout.places],
        "node": [layout.node(rank) for rank in range(layout.size)],
        **vectors,
    }


def provenance_of(result: RunResult, begun: Mapping[str, Any]) -> dict[str, Any]:
    """What the record knew when it began, and where it ran."""
    return {
        **begun,
        "hosts": sorted({rank.host for rank in result.reports}),
        "devices": sorted({rank.device for rank in result.reports}),
    }
