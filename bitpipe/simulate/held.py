"""What the devices of a job hold: its cost model's sizes put through its program's order."""

from __future__ import annotations

from collections.abc import Iterator

from bitpipe.models import arithmetic
from bitpipe.models.precision import PRECISIONS
from bitpipe.schedule.action import Action
from bitpipe.schedule.effects import FINISHES
from bitpipe.schedule.flow import recomputed_chunks
from bitpipe.schedule.program import Program
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.engine import Span
from bitpipe.simulate.memory import InFlight, Memory, in_flight


class Held:
    """Memory of the devices of a pipeline group, by the program's order: needs no simulation."""

    def __init__(self, costs: CostModel, *, fused: bool = False) -> None:
        job, stages = costs.job, costs.placement.stages
        self.costs = costs
        self.activations = [
            arithmetic.stage_activation_bytes(
                job.model, stages, stage, job.micro_batch_size, fused=fused, element=costs.element
            )
            for stage in range(stages)
        ]
        self.logits = [0.0] * (stages - 1) + [arithmetic.logits_bytes(job.model, job.micro_batch_size)]
        self.buffer = arithmetic.boundary_bytes(job.model, job.micro_batch_size, costs.element)

    def __call__(self, action: Action) -> tuple[float, float]:
        return self.activations[action.stage], self.logits[action.stage]

    def static(self, device: int) -> float:
        """Weights, gradients and optimizer state."""
        return self.costs.resident_parameters[device] * PRECISIONS[self.costs.job.precision].parameter

    def changes(self, program: Program, device: int) -> Iterator[InFlight]:
        """Every change of what the device holds besides its parameters, in the program's order."""
        return in_flight(program.rows[device], recomputed_chunks(program.schedule), self, self.buffer)

    def peak(self, program: Program, device: int) -> Memory:
        _, activations, logits, buffers = max(
            self.changes(program, device), key=lambda now: now.activations + now.logits + now.buffers
        )
        return Memory(parameters=self.static(device), activations=activations, logits=logits, buffers=buffers)

    def curve(
        self, program: Program, device: int, spans: tuple[Span, ...]
    ) -> tuple[tuple[float, float], ...]:
        """(time, bytes): a forward's activations count from its start, a backward's to its end."""
        base = self.static(device)
        row = program.rows[device]
        points = [(0.0, base)]
        for position, activations, logits, buffers in self.changes(program, device):
            start, end = spans[position]
            moment = end if row[position].action.kind in FINISHES else start
            points.append((moment, base + activations + logits + buffers))
        return tuple(points)
