"""ZB-V (Qi et al., *Zero Bubble Pipeline Parallelism*, ICLR 2024, section 6): V, one copy of the weights.

Makespan 3N + (D−1)/2, a device's own span 3N for N ≥ 2D−1, at most D activations on every device.
"""

from itertools import islice

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.methods.base import ALWAYS, ZERO_BUBBLE, Method, Plan


def order(plan: Plan) -> Rows:
    """The order of Figure 8 where it is free of bubbles (N ≥ 2D−1), else the list rule, which is faster."""
    if plan.search or plan.micro_batches < 2 * plan.placement.depth - 1:
        return list_rule(plan.codes, plan.cap)
    return [_row(plan.codes, device) for device in range(plan.placement.depth)]


def _row(codes: Codes, device: int) -> list[int]:
    """Device s; chunk 0 is stage s, chunk 1 the stage on the way back. A W waits in the order of the I."""
    depth, count = codes.placement.depth, codes.micro_batches
    stages = device, 2 * depth - 1 - device
    forwards = [iter([codes.forward(m, stage) for m in range(count)]) for stage in stages]
    backwards = [iter([codes.backward(m, stage) for m in range(count)]) for stage in stages]
    weights = [iter([codes.weight(m, stage) for m in range(count)]) for stage in stages]
    row: list[int] = []
    waiting: list[int] = []  # chunks whose W is due
    for _ in range(2 * (depth - device) - 1):
        row.append(next(forwards[0]))
    for _ in range(device):
        row += (next(forwards[1]), next(forwards[0]))
    for _ in range(depth - device):
        row += (next(forwards[1]), next(backwards[1]), next(weights[1]))
    for _ in range(count - depth):
        row += islice(forwards[0], 1)  # while there are any
        row += (next(backwards[0]), next(weights[0]), next(forwards[1]), next(backwards[1]), next(weights[1]))
    for _ in range(device):
        row += (next(backwards[0]), next(backwards[1]))
        waiting += (0, 1)
    for _ in range(depth - device):
        row.append(next(backwards[0]))
        waiting.append(0)
        row.append(next(weights[waiting.pop(0)]))
    return row + [next(weights[chunk]) for chunk in waiting]


ZB_V = Method(
    name="zb_v",
    title="ZB-V",
    family=ZERO_BUBBLE,
    description="V placement, weight gradients fill the bubbles, one copy of the weights",
    placements=("v",),
    chunks=2,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: 2 * min(placement.depth, micro_batches),
    tunable_cap=True,
    splits=ALWAYS,
)
