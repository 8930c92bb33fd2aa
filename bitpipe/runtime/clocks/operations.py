"""Which operations of a run are the same one, whatever method, rank or micro-batch they belong to.

A forward of three layers takes what any forward of three layers takes; the first stage also embeds,
the last one also has the head and the loss. What a step takes depends on how many parameters it updates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bitpipe.job import Job
from bitpipe.models import arithmetic
from bitpipe.models.config import partition
from bitpipe.runtime.plan import Plan
from bitpipe.schedule.action import Kind


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What a compute action or STEP does, as far as its duration depends on it.

    Attributes:
        kind: F, B, I, W or STEP.
        layers: of the stage (0 for STEP).
        embedding, head: whether the stage is the first, the last one.
        empty: of a micro-batch without samples, which pads the schedule.
        fused: of a B or W: layers add to the weight gradients in place.
        parameters: of STEP: how many it updates, copies counted.
        clipped: of STEP: the gradient's norm is bounded.
    """

    kind: Kind
    layers: int = 0
    embedding: bool = False
    head: bool = False
    empty: bool = False
    fused: bool = False
    parameters: int = 0
    clipped: bool = False

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "kind": self.kind.value}


def operations_of(plan: Plan, job: Job) -> dict[int, Operation]:
    """The operation at every timed position of a rank's row."""
    schedule = plan.program.schedule
    layers, last = partition(job.model.layers, plan.stages), plan.stages - 1
    fused = fuses(plan)
    found: dict[int, Operation] = {}
    for position in plan.timed:
        action = plan.actions[position]
        if action.kind is Kind.STEP:
            parameters = arithmetic.resident_parameters(job.model, schedule.placement, plan.device)
            found[position] = Operation(
                kind=Kind.STEP, parameters=parameters, clipped=job.clip_norm is not None
            )
            continue
        found[position] = Operation(
            kind=action.kind,
            layers=layers[action.stage],
            embedding=action.stage == 0,
            head=action.stage == last,
            empty=action.micro_batch in schedule.empty,
            fused=fused and action.kind is Kind.B,
        )
    return found


def fuses(plan: Plan) -> bool:
    """Whether the rank's layers add to their gradients in place, which a split backward does not."""
    return all(action.kind is not Kind.I for action in plan.actions)
