"""BitPipe: two interleaved pipes in opposite directions, V placement."""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.methods.base import TWO_DIRECTIONS, Method, Plan
from bitpipe.schedule.two_queues import two_queues, unit


def order(plan: Plan) -> Rows:
    """The unit at N = D, units concatenated by two queues at N = K·D, else the list rule."""
    depth = plan.placement.depth
    if plan.search or plan.codes.split_backward or depth % 2 or plan.micro_batches % depth:
        return list_rule(plan.codes, plan.cap)
    if plan.micro_batches == depth:
        return unit(plan.codes)
    assert plan.cap is not None
    return two_queues(plan.codes, plan.cap)


BITPIPE = Method(
    name="bitpipe",
    title="BitPipe",
    family=TWO_DIRECTIONS,
    description="two interleaved pipes in opposite directions, V placement",
    placements=("v", "cyclic"),
    chunks=2,
    any_chunks=True,
    bidirectional=True,
    needs="D even",
    layout="replica_aware",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: placement.chunks * min(placement.depth, micro_batches),
    tunable_cap=True,
)
