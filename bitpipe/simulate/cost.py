"""The cost model: seconds and bytes of every action of a job on a calibrated cluster.

A forward takes its FLOPs over the sustained rate plus a fixed overhead, a backward twice the
FLOPs; of a split one the weights' half takes its products with weights, the input's half the rest,
attention included (:mod:`bitpipe.models.arithmetic`). An empty micro-batch takes what any other does, as
ranks compute it. The optimizer step is bound by memory bandwidth: it takes time in
proportion to the parameters that are resident, so methods with two replicas of the weights pay twice
(section 2.2.3). Transfers cost what :mod:`bitpipe.cluster.links` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from bitpipe.cluster import Cluster, Link, Links, RankLayout
from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.models import ModelConfig, arithmetic, partition
from bitpipe.models.precision import PRECISIONS
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.costs import WORTH
from bitpipe.schedule.lowering import needs_tie
from bitpipe.schedule.placement import Placement
from bitpipe.schedule.schedule import Schedule
from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.programs import schedule_of


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """What the actions of ``job`` cost on ``cluster`` according to ``calibration``.

    Raises:
        InputError: the job needs more devices than the cluster has.
    """

    job: Job
    cluster: Cluster
    calibration: Calibration

    def __post_init__(self) -> None:
        if self.job.ranks > self.cluster.size:
            raise InputError(
                "width·depth",
                self.job.ranks,
                f"cluster {self.cluster.name} has {self.cluster.size} devices",
            )

    @cached_property
    def schedule(self) -> Schedule:
        return schedule_of(self.job.schedule)

    @property
    def placement(self) -> Placement:
        return self.schedule.placement

    @cached_property
    def layout(self) -> RankLayout:
        return RankLayout(
            name=self.job.layout,
            width=self.job.width,
            depth=self.job.schedule.depth,
            devices_per_node=self.cluster.devices_per_node,
        )

    @cached_property
    def links(self) -> Links:
        """The cluster's links at the calibrated efficiencies.

        What was lost between the nodes of one cluster is no property of its devices: elsewhere the
        links between nodes count as their cluster file states them.
        """
        cluster, here = self.cluster, self._same_devices
        known = self.calibration.p2p_inter_efficiency if here else None
        across = self.calibration.all_reduce_inter_efficiency if here else 1.0
        reached = replace(
            cluster,
            all_reduce_intra=_scaled(cluster.all_reduce_intra, self.calibration.all_reduce_efficiency),
            all_reduce_inter=_scaled(cluster.all_reduce_inter, across),
            p2p_inter=_scaled(cluster.p2p_inter, 1.0 if known is None else known),
        )
        stated = Links.of(cluster, self.layout)
        return replace(Links.of(reached, self.layout), nic=stated.nic)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why the calibration says little about this job, whatever its schedule; nothing if it does."""
        job, here = self.job, self.calibration
        tokens = job.micro_batch_size * job.model.sequence
        doubts = {
            f"fitted on {here.device}": not self._same_devices,
            f"fitted in {here.precision}": not PRECISIONS[job.precision].costs_as(
                PRECISIONS.get(here.precision)
            ),
            f"fitted at other micro-batches than {tokens} tokens": not here.covers(tokens),
            "no rate between nodes": self.layout.nodes > 1 and here.p2p_inter_efficiency is None,
        }
        return tuple(doubt for doubt, holds in doubts.items() if holds)

    @property
    def _same_devices(self) -> bool:
        return self.cluster.device.name == self.calibration.device

    @property
    def element(self) -> int:
        """Bytes of an activation."""
        return PRECISIONS[self.job.precision].element

    @cached_property
    def forward_seconds(self) -> tuple[float, ...]:
        """Per stage, what the FLOPs of one forward take."""
        return self._stage_seconds(arithmetic.layer_forward_flops)

    @cached_property
    def weight_grad_seconds(self) -> tuple[float, ...]:
        """Per stage, what the FLOPs of one weight gradient take."""
        return self._stage_seconds(arithmetic.layer_weight_grad_flops)

    def _stage_seconds(self, layer_flops: Callable[[ModelConfig, int], int]) -> tuple[float, ...]:
        """With those of the head, which are the same forward as for its weights."""
        model, samples, stages = self.job.model, self.job.micro_batch_size, self.placement.stages
        peak = self.cluster.device.peak_flops * PRECISIONS[self.job.precision].rate
        layer = layer_flops(model, samples) / (peak * self.calibration.compute_efficiency)
        head = arithmetic.head_forward_flops(model, samples) / (peak * self.calibration.head_efficiency)
        layers = partition(model.layers, stages)
        return tuple(layer * n + (head if stage == stages - 1 else 0.0) for stage, n in enumerate(layers))

    @cached_property
    def resident_parameters(self) -> tuple[int, ...]:
        """Per device of a pipeline group, parameters of every copy it holds."""
        return tuple(
            arithmetic.resident_parameters(self.job.model, self.placement, device)
            for device in range(self.placement.depth)
        )

    @cached_property
    def _step_seconds(self) -> tuple[float, ...]:
        here = self.calibration
        more = here.replica_bytes if self.placement.bidirectional else 0.0
        each = (here.optimizer_bytes + more) / (self.cluster.device.memory_bandwidth * here.memory_efficiency)
        return tuple(parameters * each for parameters in self.resident_parameters)

    def seconds(self, rank: int, action: Action) -> float:
        """Seconds of a compute action or STEP on a global rank."""
        if action.kind is Kind.STEP:
            return self._step_seconds[self.layout.places[rank][1]]
        return self._seconds[action.kind][action.stage]

    @cached_property
    def _seconds(self) -> dict[Kind, list[float]]:
        """Per kind and stage; a split backward's halves make up the whole, but for one more overhead."""
        table = {kind: [worth * f for f in self.forward_seconds] for kind, worth in WORTH.items()}
        table[Kind.W] = list(self.weight_grad_seconds)
        table[Kind.I] = [b - w for b, w in zip(table[Kind.B], table[Kind.W], strict=True)]
        overhead = self.calibration.op_overhead
        return {kind: [seconds + overhead for seconds in row] for kind, row in table.items()}

    @cached_property
    def _apart(self) -> bool:
        """Whether first and last stage hold copies of a tied embedding on different devices."""
        return needs_tie(self.placement, self.job.model.tied_embeddings)

    @cached_property
    def _boundary_bytes(self) -> int:
        return arithmetic.boundary_bytes(self.job.model, self.job.micro_batch_size, self.element)

    @cached_property
    def gradient_bytes(self) -> tuple[float, ...]:
        """Per stage, bytes of its all-reduce; a tied embedding that lies apart is left to TIE."""
        model, stages = self.job.model, self.placement.stages
        counts = [
            arithmetic.stage_parameters(model, stages, stage, shared=model.tied_embeddings)
            for stage in range(stages)
        ]
        if self._apart:
            counts[0] -= model.vocabulary * model.hidden
        return tuple(count * self._gradient_element for count in counts)

    @property
    def _gradient_element(self) -> float:
        return self.calibration.gradient_bytes if PRECISIONS[self.job.precision].half else self.element

    def size(self, action: Action) -> float:
        """Bytes of a SEND or of a collective."""
        kind, model = action.kind, self.job.model
        if kind in (Kind.SYNC, Kind.SCATTER, Kind.SEND_G):
            return self.gradient_bytes[action.stage]
        if kind in (Kind.GATHER, Kind.SEND_P):
            return self.gradient_bytes[action.stage] / self._gradient_element * self.element
        if kind in (Kind.SEND_S, Kind.SEND_X):
            return arithmetic.stage_activation_bytes(
                model,
                self.placement.stages,
                action.stage,
                self.job.micro_batch_size,
                fused=False,
                element=self.element,
            )
        if action.kind is Kind.TIE:
            return self.job.model.vocabulary * self.job.model.hidden * self._gradient_element
        return self._boundary_bytes


def _scaled(link: Link, efficiency: float) -> Link:
    return Link(bandwidth=link.bandwidth * efficiency, latency=link.latency)
