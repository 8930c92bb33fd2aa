"""A cell on the cost model: no ranks, and the same numbers every time."""

from __future__ import annotations

from typing import Any

from bitpipe.errors import InputError
from bitpipe.simulate.memory import GIB, Verdict
from bitpipe.simulate.predict import Prediction, predict
from bitpipe.simulate.unit_calibration import UnitCalibration
from experiments.cell import Cell
from experiments.records.record import Cause, Record, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end, traffic_metrics
from experiments.running.block import Block
from experiments.running.finishing import finish
from experiments.running.unit_costs import simulate_in_units


def simulate(cell: Cell, block: Block) -> Record:
    """Predict one cell and write its record. A prediction that does not fit is ``oom``."""
    if isinstance(cell.calibration, UnitCalibration):
        return simulate_in_units(cell, block)
    store = Store(block.settings.results)
    record = begin(cell, block, store.claim(cell.id))
    assert cell.calibration is not None
    try:
        found = predict(cell.job, cell.cluster, cell.calibration)
        record = _predicted(record, found, cell, store, block.settings.timelines)
    except InputError as error:
        record = end(record, status=Status.INVALID, cause=Cause(kind="input", message=str(error)))
    except Exception as error:
        record = end(record, status=Status.FAILED, cause=Cause.of(error))
    return finish(record, store, block.settings.wandb)


def _predicted(record: Record, found: Prediction, cell: Cell, store: Store, timelines: bool) -> Record:
    devices = _devices(found, cell)
    metrics: dict[str, Any] = {"memory_verdict": found.verdict.value, "calibrated": found.calibrated}
    if found.verdict is Verdict.DOES_NOT_FIT:
        return end(record, status=Status.OOM, cause=_too_much(found), devices=devices, metrics=metrics)
    seconds = found.iteration_seconds
    metrics |= {
        "samples_per_s": found.samples_per_s,
        "iteration_seconds": seconds,
        "iteration_seconds_median": seconds,
        "iterations_seconds": [seconds] * cell.job.iterations,
        "global_batch": cell.job.global_batch,
        "bubble_ratio": found.bubble_ratio,
        "model_flops_utilisation": found.model_flops_utilisation,
        **traffic_metrics(found.traffic),
    }
    timeline = None
    if timelines:
        timeline = store.write_timeline(record, found.timeline)
    return end(record, status=Status.OK, cause=None, devices=devices, metrics=metrics, timeline=timeline)


def _devices(found: Prediction, cell: Cell) -> dict[str, list[Any]]:
    layout, memory = cell.layout, found.memory
    return {
        "replica": [replica for replica, _ in layout.places],
        "device": [device for _, device in layout.places],
        "node": [layout.node(rank) for rank in range(layout.size)],
        "peak_memory_bytes": [one.peak for one in memory],
        "state_bytes": [one.parameters for one in memory],
        "activation_bytes": [one.activations for one in memory],
        "logits_bytes": [one.logits for one in memory],
        "buffer_bytes": [one.buffers for one in memory],
        "busy_seconds": list(found.busy_seconds),
    }


def _too_much(found: Prediction) -> Cause:
    peaks = found.peak_memory_bytes
    rank = max(range(len(peaks)), key=peaks.__getitem__)
    capacity = found.costs.cluster.device.memory_bytes
    return Cause(
        kind="memory",
        message=f"needs {peaks[rank] / GIB:.1f} GiB, the device has {capacity / GIB:.1f} GiB",
        rank=rank,
    )
