"""Result folders built inline: a test says what lies in them and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.load.paper import ablation
from bitpipe.cluster import Cluster, Device, Link
from bitpipe.job import Job
from bitpipe.models.config import ModelConfig
from bitpipe.origin import Origin
from bitpipe.schedule.spec import ScheduleSpec
from bitpipe.simulate.unit_calibration import UnitCalibration
from experiments.cell import CLOCKS, ORIGINS, Cell
from experiments.composing.settings import RunSettings
from experiments.records.record import Cause, Record, Status
from experiments.records.store import Store, write_json
from experiments.running.block import Block
from experiments.running.unit_costs import simulate_in_units

BERT = ModelConfig(
    name="bert_64", family="bert", layers=64, heads=64, hidden=2560, sequence=512, vocabulary=30592
)
TINY = replace(BERT, name="bert_tiny", layers=32, heads=4, hidden=64, sequence=32, vocabulary=1024)
LINK = Link(bandwidth=1e11, latency=1e-5)
A800 = Cluster(
    name="a800",
    nodes=2,
    devices_per_node=8,
    device=Device(
        name="NVIDIA A800 80GB SXM", peak_flops=312e12, memory_bytes=80 * 2**30, memory_bandwidth=2e12
    ),
    p2p_intra=LINK,
    p2p_inter=LINK,
    all_reduce_intra=LINK,
    all_reduce_inter=LINK,
    nics_per_node=8,
)
VARIANTS: dict[str, dict[str, str]] = {
    "full": {},
    "without_v": {"placement": "cyclic"},
    "without_e": {"sync": "late"},
    "without_m": {"layout": "sequential"},
}
BACKEND = {origin: backend for backend, origin in ORIGINS.items() if backend != "cpu"}


def make_cell(
    origin: Origin = Origin.SIMULATED,
    *,
    depth: int = 4,
    micro_batches: int = 4,
    variant: str = "full",
    method: str = "bitpipe",
    width: int = 1,
    micro_batch_size: int = 4,
    model: ModelConfig = BERT,
    cluster: Cluster = A800,
    **job: Any,
) -> Cell:
    changes = VARIANTS[variant]
    iterations, measured = (1, 1) if origin is Origin.SIMULATED else (5, 2)
    settings = {"precision": "fp16", "iterations": iterations, "measured": measured} | job
    return Cell(
        job=Job(
            schedule=ScheduleSpec(
                method=method,
                depth=depth,
                micro_batches=micro_batches,
                placement=changes.get("placement", "v" if method == "bitpipe" else None),
            ),
            width=width,
            micro_batch_size=micro_batch_size,
            sync=changes.get("sync", "eager"),
            layout=changes.get("layout", "replica_aware"),
            model=model,
            **settings,
        ),
        cluster=cluster,
        backend=BACKEND[origin],
        labels={"variant": variant},
    )


def make_record(
    cell: Cell,
    samples_per_s: float | None = None,
    *,
    status: Status = Status.OK,
    attempt: int = 1,
    experiment: str = "table6_ablation",
    times: list[float] | None = None,
    revision: str = "0123456789abcdef",
    dirty: bool = False,
    memory: list[float] | None = None,
    devices: list[str] | None = None,
    **metrics: Any,
) -> Record:
    """A record whose iteration times give ``samples_per_s``, or lie as ``times`` says."""
    batch = cell.job.global_batch
    if times is None:
        times = [] if samples_per_s is None else [batch / samples_per_s] * cell.job.iterations
    counted = times[-cell.job.measured :]
    values: dict[str, Any] = {"global_batch": batch, "iterations_seconds": times, **metrics}
    if counted:
        mean = sum(counted) / len(counted)
        values |= {"iteration_seconds": mean, "samples_per_s": batch / mean}
    ranks = range(cell.job.ranks)
    peaks = memory or [2.0**33 + rank * 2.0**28 for rank in ranks]
    return Record(
        cell=cell.id,
        attempt=attempt,
        status=status,
        origin=cell.origin,
        experiment=experiment,
        identity=cell.identity(),
        labels=cell.labels,
        metrics=values,
        devices={} if status is not Status.OK else {"peak_memory_bytes": peaks, "device": list(ranks)},
        provenance={
            "backend": cell.backend,
            "clock": CLOCKS[cell.backend],
            "launcher": "local",
            "revision": revision,
            "dirty": dirty,
            "versions": {"torch": "2"},
            "hardware": {"cpu": "test"},
            "hosts": ["here"],
            "devices": devices or [cell.cluster.device.name if cell.backend == "cuda" else "cpu"],
            "seed": 0,
            "calibration": None,
        },
        cause=None if status is Status.OK else Cause(kind="memory", message="does not fit", rank=0),
        started="2026-01-01T00:00:00Z",
        finished="2026-01-01T00:00:01Z",
    )


class Folder:
    """A results folder under construction."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root)

    def add(self, *records: Record) -> Folder:
        for record in records:
            self.store.write(record)
        return self

    def sweep(self, experiment: str, cells: Iterable[Cell], stamp: str = "20260101-000000") -> Folder:
        """A manifest that asks for ``cells``."""
        asked = [{"cell": cell.id, "backend": cell.backend, "labels": dict(cell.labels)} for cell in cells]
        write_json(
            self.root / "sweeps" / experiment / f"{stamp}.json",
            {"experiment": experiment, "stamp": stamp, "cells": asked},
        )
        return self

    def timelines(self, experiment: str, methods: Iterable[str]) -> Folder:
        """Schedules in the paper's unit of time at D=4 N=4, simulated, with their timelines."""
        unit = replace(make_cell(), calibration=UnitCalibration())
        cells = [
            replace(
                unit,
                job=replace(unit.job, schedule=ScheduleSpec(method=name, depth=4, micro_batches=4)),
                labels={"method": name},
            )
            for name in methods
        ]
        settings = RunSettings(results=self.root)
        for cell in cells:
            simulate_in_units(cell, Block(experiment=experiment, cells=(cell,), settings=settings))
        return self.sweep(experiment, cells)


TABLE6_POINTS = tuple((depth, depth * factor) for depth in (4, 8, 16) for factor in (1, 4))


def table6_folder(folder: Folder, points: Iterable[tuple[int, int]] = TABLE6_POINTS) -> Folder:
    """Table 6 twice: simulated 1% below the paper, and virtual with intervals."""
    paper = ablation().set_index(["depth", "micro_batches", "variant"])["samples_per_s"]
    for origin, model in ((Origin.SIMULATED, BERT), (Origin.VIRTUAL, TINY)):
        cells = []
        for depth, micro_batches in points:
            for variant in VARIANTS:
                cell = make_cell(
                    origin, depth=depth, micro_batches=micro_batches, variant=variant, model=model
                )
                cells.append(cell)
                speed = float(paper[depth, micro_batches, variant])
                if origin is Origin.SIMULATED:
                    folder.add(make_record(cell, 0.99 * speed, calibrated=depth < 16))
                else:
                    batch = cell.job.global_batch
                    times = [batch / speed / 100 * wobble for wobble in (1.2, 1, 1, 1.001, 0.999)]
                    folder.add(make_record(cell, times=times))
        folder.sweep("table6_ablation", cells, stamp=f"20260101-00000{len(origin)}")
    return folder
