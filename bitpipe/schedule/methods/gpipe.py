"""GPipe: every micro-batch forward, then every one backward."""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import ONE_DIRECTION, Method, Plan


def order(plan: Plan) -> Rows:
    """With a split backward each W directly follows its I, which frees the activation soonest."""
    codes, count = plan.codes, plan.micro_batches
    rows: Rows = []
    for stage in range(codes.stages):
        row = [codes.forward(m, stage) for m in range(count)]
        for m in range(count):
            row.append(codes.backward(m, stage))
            if codes.split_backward:
                row.append(codes.weight(m, stage))
        rows.append(row)
    return rows


GPIPE = Method(
    name="gpipe",
    title="GPipe",
    family=ONE_DIRECTION,
    description="all forwards, then all backwards",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="late",
    order=order,
    default_cap=lambda placement, micro_batches: micro_batches,
)
