"""ZB-H1 (Qi et al., *Zero Bubble Pipeline Parallelism*, ICLR 2024): 1F1B whose weight gradients wait.

Only I is on the way to the stage before, so W fills what would be a bubble. Activations stay at those of
1F1B's first device, on every device; makespan 3N + D − 1 for N ≥ D, 2(N + D − 1) + 1 below.
"""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import ALWAYS, Method, Plan


def order(plan: Plan) -> Rows:
    """Stage s: D−s forwards, I, then s times F and I; from there on every I makes room for a W first."""
    codes, count = plan.codes, plan.micro_batches
    rows: Rows = []
    for stage in range(codes.stages):
        forwards = [codes.forward(m, stage) for m in range(count)]
        weights = [codes.weight(m, stage) for m in range(count)]
        warm_up = codes.stages - stage
        row, rest = forwards[:warm_up], forwards[warm_up:]
        for m in range(count):
            if m > stage:
                row.append(weights.pop(0))
            if m:
                row += rest[m - 1 : m]
            row.append(codes.backward(m, stage))
        rows.append(row + weights)
    return rows


ZB_H1 = Method(
    name="zb_h1",
    title="ZB-H1",
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
