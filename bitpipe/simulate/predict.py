"""Predictions: what one training job takes and holds on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bitpipe.cluster import Cluster, LinkClass
from bitpipe.errors import choose
from bitpipe.job import Job
from bitpipe.models import arithmetic
from bitpipe.schedule.timeline import Timeline
from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.engine import Trace, trace
from bitpipe.simulate.held import Held
from bitpipe.simulate.memory import Memory, Verdict, verdict
from bitpipe.simulate.programs import program_of
from bitpipe.traffic import Collective, Traffic, traffic

WEIGHS = 0.02
"""From what share of an iteration a rate that was never fitted makes a prediction uncalibrated."""
ATTENTIONS = ("unfused", "fused")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One iteration of a job, simulated.

    Attributes:
        costs: the job, the cluster and the calibration.
        trace: when everything happened.
    """

    costs: CostModel
    trace: Trace

    @property
    def iteration_seconds(self) -> float:
        return self.trace.makespan

    @property
    def samples_per_s(self) -> float:
        """B̂ over the iteration's seconds."""
        return self.costs.job.global_batch / self.iteration_seconds

    @property
    def calibrated(self) -> bool:
        """Whether the calibration covers this job on this cluster."""
        return not self.doubts

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Why it does not; nothing if it does."""
        if "all_reduce_inter_efficiency" in self.costs.calibration.fitted or self._between_nodes <= WEIGHS:
            return self.costs.unknown
        share = f"{100 * self._between_nodes:.0f}% in all-reduces between nodes, a rate never fitted"
        return *self.costs.unknown, share

    @property
    def _between_nodes(self) -> float:
        """Share of the iteration that a rank spends in all-reduces between nodes, at most."""
        spent = [0.0] * self.costs.layout.size
        for collective in self.trace.collectives:
            if collective.link is LinkClass.INTER:
                for rank in collective.members:
                    spent[rank] += collective.end - collective.start
        return max(spent) / self.iteration_seconds

    @cached_property
    def _compute(self) -> tuple[tuple[tuple[float, ...], ...], float]:
        """Busy seconds per replica and device, and when the last compute action ended."""
        seen: dict[int, tuple[float, ...]] = {}
        last = 0.0
        rows = self.trace.program.rows
        for spans in self.trace.spans:
            if id(spans) in seen:
                continue
            busy = []
            for row, times in zip(rows, spans, strict=True):
                total = 0.0
                for instruction, (start, end) in zip(row, times, strict=True):
                    if instruction.action.is_compute:
                        total += end - start
                        last = max(last, end)
                busy.append(total)
            seen[id(spans)] = tuple(busy)
        return tuple(seen[id(spans)] for spans in self.trace.spans), last

    @cached_property
    def busy_seconds(self) -> tuple[float, ...]:
        """Per global rank, time in forwards and backwards."""
        busy, _ = self._compute
        return tuple(busy[replica][device] for replica, device in self.costs.layout.places)

    @property
    def bubble_ratio(self) -> float:
        """Idle share of all ranks' time up to the end of the last compute action."""
        _, last = self._compute
        return 1.0 - sum(self.busy_seconds) / (last * self.costs.layout.size)

    @property
    def model_flops_utilisation(self) -> float:
        """FLOPs that the model needs over what the devices' peak would do in the same time."""
        job, device = self.costs.job, self.costs.cluster.device
        done = arithmetic.training_flops(job.model, job.global_batch)
        return done / (self.iteration_seconds * device.peak_flops * job.ranks)

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """Per global rank, bytes at the peak, attention unfused as in the paper's time."""
        return self.memory_with("unfused")

    def memory_with(self, attention: str) -> tuple[Memory, ...]:
        """Per global rank, bytes at the peak with ``unfused`` or ``fused`` attention."""
        held = Held(self.costs, fused=choose("attention", attention, ATTENTIONS) == "fused")
        per_device = [held.peak(self.trace.program, device) for device in range(self.costs.layout.depth)]
        return tuple(per_device[device] for _, device in self.costs.layout.places)

    @property
    def peak_memory_bytes(self) -> tuple[float, ...]:
        """Per global rank."""
        return tuple(memory.peak for memory in self.memory)

    @property
    def verdict(self) -> Verdict:
        """Whether the fullest device can hold its share."""
        return verdict(max(self.peak_memory_bytes), self.costs.cluster.device.memory_bytes)

    @cached_property
    def traffic(self) -> tuple[Traffic, ...]:
        """Bytes by kind and link class."""
        collectives = (Collective(c.action.kind, tuple(c.members), c.size) for c in self.trace.collectives)
        return traffic(self.trace.program, self.costs.layout, self.costs.size, collectives)

    @cached_property
    def timeline(self) -> Timeline:
        """All events of all ranks, with every rank's memory over time."""
        held = Held(self.costs)
        curves = tuple(
            held.curve(self.trace.program, device, self.trace.spans[replica][device])
            for replica, device in self.costs.layout.places
        )
        return replace(self.trace.timeline, memory=curves)


def predict(job: Job, cluster: Cluster, calibration: Calibration) -> Prediction:
    """Simulate one iteration of ``job``.

    Raises:
        InputError: the job's schedule is impossible, or it does not fit the cluster's size.
    """
    costs = CostModel(job=job, cluster=cluster, calibration=calibration)
    found = trace(program_of(job), costs, costs.links, alike=True)
    return Prediction(costs=costs, trace=found)
