"""ZB-H2 (Qi et al., *Zero Bubble Pipeline Parallelism*, ICLR 2024): no bubble inside, at twice the memory.

A device's own span is 3N for N ≥ 2D−1. Behind a barrier before the optimizer step (global gradient norm,
overflow check) the iteration still takes 3N + D − 1, as ZB-H1 does with half of the activations: without
validating the step afterwards, which this project does not do, it gains nothing.
"""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import ALWAYS, ZERO_BUBBLE, Method, Plan
from bitpipe.schedule.methods.zb_h1 import waiting_weights


def order(plan: Plan) -> Rows:
    """As ZB-H1 with 2(D−s)−1 forwards first and 2s input gradients before the first W (Figure 3)."""
    depth = plan.codes.stages
    return waiting_weights(plan.codes, lambda stage: 2 * (depth - stage) - 1, lambda stage: 2 * stage)


ZB_H2 = Method(
    name="zb_h2",
    title="ZB-H2",
    family=ZERO_BUBBLE,
    description="ZB-H1 with twice the activations; behind a barrier no faster than ZB-H1",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="late",
    order=order,
    default_cap=lambda placement, micro_batches: min(2 * placement.depth - 1, micro_batches),
    splits=ALWAYS,
)
