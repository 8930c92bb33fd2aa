"""What the devices of a job hold: its cost model's sizes put through its program's order."""

from __future__ import annotations

from bitpipe.models import arithmetic
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.program import Program
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.engine import Span
from bitpipe.simulate.memory import PARAMETER_BYTES, Memory, in_flight


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
        self.empty = costs.schedule.empty

    def __call__(self, action: Action) -> tuple[float, float]:
        if action.micro_batch in self.empty:
            return 0.0, 0.0
        return self.activations[action.stage], self.logits[action.stage]

    def static(self, device: int) -> float:
        """Weights, gradients and optimizer state."""
        return self.costs.resident_parameters[device] * PARAMETER_BYTES[self.costs.job.precision]

    def buffers(self, program: Program, device: int) -> float:
        """Receive buffers of gradients; an activation's buffer is counted with the activations."""
        row = program.rows[device]
        slots = {instruction.slot for instruction in row if instruction.action.kind is Kind.RECV_B}
        return len(slots) * arithmetic.boundary_bytes(
            self.costs.job.model, self.costs.job.micro_batch_size, self.costs.element
        )

    def peak(self, program: Program, device: int) -> Memory:
        changes = in_flight(program.rows[device], self.costs.schedule.split_backward, self)
        _, activations, logits = max(changes, key=lambda change: change[1] + change[2])
        return Memory(
            parameters=self.static(device),
            activations=activations,
            logits=logits,
            buffers=self.buffers(program, device),
        )

    def curve(
        self, program: Program, device: int, spans: tuple[Span, ...]
    ) -> tuple[tuple[float, float], ...]:
        """(time, bytes): a forward's activations count from its start, a backward's to its end."""
        base = self.static(device) + self.buffers(program, device)
        row = program.rows[device]
        points = [(0.0, base)]
        for index, activations, logits in in_flight(row, self.costs.schedule.split_backward, self):
            start, end = spans[index]
            moment = start if row[index].action.kind is Kind.F else end
            points.append((moment, base + activations + logits))
        return tuple(points)
