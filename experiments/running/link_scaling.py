"""Links for a small model that weigh as much, against its compute, as the cluster's do for the
paper's model.

A tiny model on this CPU would talk for nothing over A800 links. So bandwidths and latencies are
scaled until transfer time / chunk forward and all-reduce time / chunk forward are those of the
modelled cluster with the paper's model of the same family. With b bytes of a boundary activation,
g of all gradients, f seconds of the forward of 1/D of the model (primes: the small model here):

    P2P bandwidth x (b'/b)(f/f'),   all-reduce bandwidth x (g'/g)(f/f'),   latency x f'/f
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import inf
from statistics import fmean
from typing import Any

from bitpipe.cluster import Link, Links
from bitpipe.models import ModelConfig, arithmetic
from bitpipe.models.precision import PRECISIONS
from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.conf import model
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.unit_calibration import UnitCalibration
from experiments.cell import Cell

REFERENCE = {"bert": "bert_64", "gpt": "gpt_96"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Factors for cells that are compared on one cluster; goes into the record.

    Attributes:
        reference: model whose ratios are kept; ``unit`` for the calibration without hardware.
        forward_seconds: of 1/D of this model here, the mean over the compared cells.
        p2p_bandwidth, all_reduce_bandwidth, latency: what the cluster's values are multiplied by.
        modelled_forward_seconds: of 1/D of the reference on the modelled cluster, the same mean.
    """

    reference: str
    forward_seconds: float
    p2p_bandwidth: float = 1.0
    all_reduce_bandwidth: float = 1.0
    latency: float = 1.0
    modelled_forward_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def scale_of(forwards: Sequence[tuple[Cell, float]]) -> Scale:
    """The factors that the cells of a block share.

    Args:
        forwards: cells with one model, cluster and calibration; with each, the seconds that the forward of
            1/D of the model takes here.
    """
    here, cell = fmean(seconds for _, seconds in forwards), forwards[0][0]
    if isinstance(cell.calibration, UnitCalibration):
        return Scale(reference=cell.calibration.name, forward_seconds=here)
    costs = [modelled(cell) for cell, _ in forwards]
    there = fmean(
        (fmean(one.forward_seconds) + one.calibration.op_overhead) * one.placement.chunks for one in costs
    )
    slower, first = there / here, costs[0]
    message = message_bytes(cell) / arithmetic.boundary_bytes(
        first.job.model, first.job.micro_batch_size, first.element
    )
    stages = [one.placement.stages for one in costs]
    gradient = fmean(sum(gradient_bytes(cell, count)) for count in stages) / fmean(
        sum(one.gradient_bytes) for one in costs
    )
    return Scale(
        reference=first.job.model.name,
        p2p_bandwidth=message * slower,
        all_reduce_bandwidth=gradient * slower,
        latency=1 / slower,
        modelled_forward_seconds=there,
        forward_seconds=here,
    )


def links_of(cell: Cell, scale: Scale | None) -> Links:
    """What transfers cost on the cell's own layout; as the cluster has them where ``scale`` is None."""
    if scale is None:
        return Links.of(cell.cluster, cell.layout)
    if isinstance(cell.calibration, UnitCalibration):
        return _in_units(cell, cell.calibration, scale)
    links = modelled(cell).links

    def scaled(link: Link, bandwidth: float) -> Link:
        return Link(bandwidth=link.bandwidth * bandwidth, latency=link.latency * scale.latency)

    return replace(
        links,
        p2p_intra=scaled(links.p2p_intra, scale.p2p_bandwidth),
        p2p_inter=scaled(links.p2p_inter, scale.p2p_bandwidth),
        all_reduce_intra=scaled(links.all_reduce_intra, scale.all_reduce_bandwidth),
        all_reduce_inter=scaled(links.all_reduce_inter, scale.all_reduce_bandwidth),
        nic=links.nic * scale.all_reduce_bandwidth,
    )


def _in_units(cell: Cell, costs: UnitCalibration, scale: Scale) -> Links:
    """Transfers and all-reduces that take what the unit calibration says, in stage forwards."""
    stage = scale.forward_seconds / costs.forward
    hop = Link(bandwidth=inf, latency=costs.transfer * stage)
    ring = Link(bandwidth=inf, latency=costs.all_reduce * stage)
    return Links(
        layout=cell.layout, p2p_intra=hop, p2p_inter=hop, all_reduce_intra=ring, all_reduce_inter=ring
    )


def modelled(cell: Cell) -> CostModel:
    """The cost model of the cell's schedule with the reference model in half precision."""
    assert isinstance(cell.calibration, Calibration)
    job = replace(cell.job, model=reference_of(cell.job.model.family), precision="fp16")
    return CostModel(job=job, cluster=cell.cluster, calibration=cell.calibration)


@cache
def reference_of(family: str) -> ModelConfig:
    """The paper's model of a family."""
    return model(REFERENCE[family])


def message_bytes(cell: Cell) -> float:
    """Bytes of a boundary activation here."""
    job = cell.job
    return arithmetic.boundary_bytes(job.model, job.micro_batch_size, PRECISIONS[job.precision].element)


def gradient_bytes(cell: Cell, stages: int) -> Sequence[float]:
    """Bytes of each stage's gradient here; gradients are summed in at least fp32."""
    job = cell.job
    size = PRECISIONS[job.precision].gradient
    shared = job.model.tied_embeddings
    return [
        size * arithmetic.stage_parameters(job.model, stages, stage, shared=shared) for stage in range(stages)
    ]
