"""ZB-H1 (Qi et al., *Zero Bubble Pipeline Parallelism*, ICLR 2024): 1F1B whose weight gradients wait.

Only I is on the way to the stage before, so W fills what would be a bubble. Activations stay at those of
1F1B's first device, on every device; makespan 3N + D − 1 for N ≥ D, 2(N + D − 1) + 1 below.
"""

from collections.abc import Callable
from itertools import islice

from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.methods.base import ALWAYS, ZERO_BUBBLE, Method, Plan


def order(plan: Plan) -> Rows:
    """Stage s: D−s forwards, I, then s times F and I; from there on every I makes room for a W first."""
    depth = plan.codes.stages
    return waiting_weights(plan.codes, lambda stage: depth - stage, lambda stage: stage)


def waiting_weights(codes: Codes, warm_up: Callable[[int], int], wait: Callable[[int], int]) -> Rows:
    """Per stage ``warm_up`` forwards and I, ``wait`` times F and I, then W, F and I in turn."""
    rows: Rows = []
    for stage in range(codes.stages):
        every = range(codes.micro_batches)
        forwards = iter([codes.forward(m, stage) for m in every])
        weights = iter([codes.weight(m, stage) for m in every])
        row = list(islice(forwards, warm_up(stage)))
        for m in every:
            row += islice(weights, m > wait(stage))
            row += islice(forwards, m > 0)
            row.append(codes.backward(m, stage))
        rows.append([*row, *weights])
    return rows


ZB_H1 = Method(
    name="zb_h1",
    title="ZB-H1",
    family=ZERO_BUBBLE,
    description="1F1B whose weight gradients fill the bubbles, at 1F1B's memory",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="late",
    order=order,
    default_cap=lambda placement, micro_batches: min(placement.depth, micro_batches),
    splits=ALWAYS,
)
