"""Result folders built inline: a test says what lies in them and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bitpipe.cluster import Cluster, Device, Link
from bitpipe.job import Job
from bitpipe.models.config import ModelConfig
from bitpipe.origin import Origin
from bitpipe.schedule.spec import ScheduleSpec
from experiments.cell import CLOCKS, ORIGINS, Cell
from experiments.record import Cause, Record, Status
from experiments.store import Store, write_json

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
