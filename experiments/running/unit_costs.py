"""A cell in units of a stage's forward: its schedule, without model or hardware."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from bitpipe.schedule import UNIT, Timeline, describe, generate, lower
from bitpipe.simulate.unit_calibration import UnitCalibration
from bitpipe.simulate.units import simulate_units
from experiments.cell import Cell
from experiments.records.record import Record, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end
from experiments.running.block import Block
from experiments.running.finishing import finish

# What describe() tells per device → the name of the record's vector.
_VECTORS = {
    "peak_activation_per_device": "peak_activation_ma",
    "bubble_per_device": "bubble_ratio",
    "forward_idle_per_device": "forward_idle_units",
    "backward_idle_per_device": "backward_idle_units",
}
_SCALARS = {
    "makespan": "makespan_units",
    "span": "span_units",
    "lower_bound": "lower_bound_units",
    "distance_to_bound": "distance_to_bound_units",
    "bubble_ratio": "bubble_ratio",
    "forward_idle": "forward_idle_units",
    "backward_idle": "backward_idle_units",
    "transfers": "transfers",
}


def simulate_in_units(cell: Cell, block: Block) -> Record:
    """Simulate one cell with unit costs; write its timeline and its record."""
    store = Store(block.settings.results)
    attempt = store.claim(cell.id)
    record = begin(cell, block, attempt)
    metrics, devices, timeline = figures(cell)
    name = store.write_timeline(record, timeline) if block.settings.timelines else None
    record = end(record, status=Status.OK, cause=None, metrics=metrics, devices=devices, timeline=name)
    return finish(record, store, block.settings.wandb)


def figures(cell: Cell) -> tuple[dict[str, Any], dict[str, list[Any]], Timeline]:
    """Metrics, vectors per global rank, and the timeline of a cell with a unit calibration.

    There are no seconds, so throughput and iteration time are None. ``iteration_units`` ends
    with the last all-reduce, ``makespan_units`` with the last compute action, and ``span_units`` is the
    longest of one device alone. Bounds are None at other costs than the paper's.
    """
    given, job = cell.calibration, cell.job
    assert isinstance(given, UnitCalibration)
    costs = given.costs
    schedule = generate(job.schedule)
    program = lower(schedule, sync=job.sync, width=job.width)
    timeline = _by_rank(
        simulate_units(
            program,
            all_reduce=given.all_reduce / given.forward,
            transfer=costs.transfer,
            width=job.width,
            costs=costs,
        ),
        cell,
    )
    known = asdict(describe(schedule, costs))
    metrics: dict[str, Any] = {name: known[key] for key, name in _SCALARS.items()}
    if replace(costs, transfer=0.0) != UNIT:  # the bound is one at the paper's costs
        metrics |= dict.fromkeys(("lower_bound_units", "distance_to_bound_units"))
    metrics |= {
        "iteration_units": timeline.makespan,
        "global_batch": job.global_batch,
        "samples_per_s": None,
        "iteration_seconds": None,
        "iterations_seconds": [],
    }
    places = cell.layout.places
    devices: dict[str, list[Any]] = {
        "replica": [replica for replica, _ in places],
        "device": [device for _, device in places],
        "node": [cell.layout.node(rank) for rank in range(len(places))],
    }
    devices |= {name: [known[key][device] for _, device in places] for key, name in _VECTORS.items()}
    held = [len(schedule.placement.held[device]) / schedule.chunks for _, device in places]
    devices["weights_m_theta"] = held
    return metrics, devices, timeline


def _by_rank(timeline: Timeline, cell: Cell) -> Timeline:
    """A timeline whose rows are device d of replica w at w·D + d, with the cell's ranks as rows."""
    ranks = [cell.layout.rank(*divmod(row, cell.layout.depth)) for row in range(timeline.devices)]
    events = tuple(event._replace(device=ranks[event.device]) for event in timeline.events)
    return replace(timeline, events=events)
