"""DAPPLE, also known as 1F1B: a backward as soon as there is one."""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.methods.base import ONE_DIRECTION, Method, Plan


def order(plan: Plan) -> Rows:
    """Stage r first does D−1−r forwards, then one forward and one backward in turn."""
    if plan.codes.split_backward:
        return list_rule(plan.codes, plan.cap)
    codes, count = plan.codes, plan.micro_batches
    rows: Rows = []
    for stage in range(codes.stages):
        warm_up = min(codes.stages - 1 - stage, count)
        row = [codes.forward(m, stage) for m in range(warm_up)]
        for m in range(count - warm_up):
            row += (codes.forward(m + warm_up, stage), codes.backward(m, stage))
        row += [codes.backward(m, stage) for m in range(count - warm_up, count)]
        rows.append(row)
    return rows


DAPPLE = Method(
    name="dapple",
    title="DAPPLE",
    family=ONE_DIRECTION,
    description="one forward, one backward in turn (1F1B)",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="late",
    order=order,
    default_cap=lambda placement, micro_batches: min(placement.depth, micro_batches),
)
