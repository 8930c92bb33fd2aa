"""GPipe: every micro-batch forward, then every one backward."""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import Method, Plan


def order(plan: Plan) -> Rows:
    codes, count = plan.codes, plan.micro_batches
    return [
        [codes.forward(m, stage) for m in range(count)] + [codes.backward(m, stage) for m in range(count)]
        for stage in range(codes.stages)
    ]


GPIPE = Method(
    name="gpipe",
    title="GPipe",
    description="all forwards, then all backwards",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=False,
    partition="sequential",
    scheduling="one direction, all forwards, then all backwards",
    device_mapping="sequential",
    sync="after compute",
    needs="–",
    layout="sequential",
    sync_mode="late",
    order=order,
    default_cap=lambda placement, micro_batches: micro_batches,
)
