"""The figures of a schedule: what the paper's Table 3 and sections 1.2 and 1.3 speak about."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bitpipe.schedule.action import Kind
from bitpipe.schedule.bounds import schedule_bound
from bitpipe.schedule.costs import UNIT, Costs
from bitpipe.schedule.evaluation import evaluate, peak_activations
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.timeline import by_device


@dataclass(frozen=True, kw_only=True)
class Description:
    """A schedule in numbers. Times are in units of one stage forward, and exact for unit costs.

    Attributes:
        method: its name.
        depth: D.
        micro_batches: N, empty ones included.
        chunks: v.
        placement: its name.
        cap: most chunks of activations that a device may hold, or None.
        split_backward: backward as input and weight gradient.
        empty_micro_batches: how many carry no samples.
        makespan: until the last action ends.
        span: the longest that one device needs from its first start to its last end.
        bubble_ratio: idle share of all devices' time.
        bubble_per_device: idle share of each device's time.
        forward_idle: mean over devices of ``forward_idle_per_device``.
        backward_idle: mean over devices of ``backward_idle_per_device``.
        forward_idle_per_device: idle time of each device before its first backward: the share
            of its bubble that the forward pass causes (section 1.3.2).
        backward_idle_per_device: its idle time from then on.
        peak_activation_per_device: in Ma, one micro-batch's activations on 1/D of the model.
        transfers: messages that cross devices, activations and gradients, per iteration.
        lower_bound: no order under this cap finishes earlier (:mod:`bitpipe.schedule.bounds`).
        distance_to_bound: makespan − lower_bound.
    """

    method: str
    depth: int
    micro_batches: int
    chunks: int
    placement: str
    cap: int | None
    split_backward: bool
    empty_micro_batches: int
    makespan: float
    span: float
    bubble_ratio: float
    bubble_per_device: tuple[float, ...]
    forward_idle: float
    backward_idle: float
    forward_idle_per_device: tuple[float, ...]
    backward_idle_per_device: tuple[float, ...]
    peak_activation_per_device: tuple[float, ...]
    transfers: int
    lower_bound: float
    distance_to_bound: float


def describe(schedule: Schedule, costs: Costs = UNIT) -> Description:
    """Compute a schedule's figures.

    Raises:
        ProgramError: the schedule deadlocks.
    """
    timeline = evaluate(schedule, costs)
    makespan = timeline.makespan
    forward_idle, backward_idle, bubbles = [], [], []
    for row in by_device(timeline.events, schedule.depth):
        busy = sum(event.end - event.start for event in row)
        turn = next((i for i, event in enumerate(row) if event.action.kind is not Kind.F), len(row))
        first_backward = row[turn].start if turn < len(row) else makespan
        forward_idle.append(first_backward - sum(event.end - event.start for event in row[:turn]))
        backward_idle.append(makespan - busy - forward_idle[-1])
        bubbles.append(1.0 - busy / makespan)
    bound = schedule_bound(schedule)
    return Description(
        method=schedule.method,
        depth=schedule.depth,
        micro_batches=schedule.micro_batches,
        chunks=schedule.chunks,
        placement=schedule.placement.name,
        cap=schedule.cap,
        split_backward=schedule.split_backward,
        empty_micro_batches=len(schedule.empty),
        makespan=makespan,
        span=timeline.span,
        bubble_ratio=timeline.bubble_ratio,
        bubble_per_device=tuple(bubbles),
        forward_idle=sum(forward_idle) / schedule.depth,
        backward_idle=sum(backward_idle) / schedule.depth,
        forward_idle_per_device=tuple(forward_idle),
        backward_idle_per_device=tuple(backward_idle),
        peak_activation_per_device=peak_activations(schedule),
        transfers=count_transfers(schedule),
        lower_bound=bound,
        distance_to_bound=makespan - bound,
    )


def count_transfers(schedule: Schedule) -> int:
    """Activations and gradients that cross devices in one iteration, as messages.

    The V placement needs 2N·v(D−1), the cyclic one 2N(vD−1): its turns cross devices, too.
    """
    table = schedule.placement.routes
    crossing = [sum(a != b for a, b in pairwise(row)) for row in table]
    return 2 * sum(crossing[pipe] for pipe in schedule.pipes)
