"""Blocks of tiny cells, as a sweep would make them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import yaml

from bitpipe.cluster import Cluster
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.schedule.spec import ScheduleSpec
from experiments.cell import Cell
from experiments.composing.settings import RunSettings
from experiments.running.block import Block

CONF = Path(__file__).resolve().parents[2] / "conf"


@cache
def cell(depth: int = 4, backend: str = "virtual", seed: int = 0) -> Cell:
    """BitPipe on one pipeline group of the tiny model, on nodes of eight."""
    cluster = Cluster.from_mapping(yaml.safe_load((CONF / "cluster" / "a800.yaml").read_text()))
    spec = ScheduleSpec(method="bitpipe", depth=depth, micro_batches=depth)
    model = ModelConfig(**yaml.safe_load((CONF / "model" / "bert_tiny.yaml").read_text()))
    job = Job(
        schedule=spec,
        width=1,
        micro_batch_size=1,
        sync="eager",
        layout="sequential",
        model=model,
        seed=seed,
        iterations=5,
        measured=2,
    )
    return Cell(job=job, cluster=replace(cluster, nodes=4), backend=backend)


def block(
    depth: int = 4,
    *,
    cells: int = 1,
    backend: str = "virtual",
    seed: int = 0,
    results: Path = Path("/results"),
) -> Block:
    """Cells that differ in their seed."""
    members = tuple(cell(depth, backend, seed + number) for number in range(cells))
    return Block(experiment="some", cells=members, settings=RunSettings(results=results, launcher="slurm"))
