"""1F1B-Int: Megatron-LM's interleaved schedule, v chunks per device in cyclic order."""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.methods.base import ONE_DIRECTION, Method, Plan
from bitpipe.schedule.placement import Placement


def order(plan: Plan) -> Rows:
    """Megatron-LM's order: groups of D micro-batches go chunk by chunk.

    Device r warms up with 2(D−1−r) + (v−1)D forwards, or with all of them at N = D.
    """
    if plan.codes.split_backward:
        return list_rule(plan.codes, plan.cap)
    codes, depth, chunks = plan.codes, plan.placement.depth, plan.placement.chunks
    total = plan.micro_batches * chunks
    steps = []
    for k in range(total):
        group, within = divmod(k, depth * chunks)
        chunk, lane = divmod(within, depth)
        steps.append((group * depth + lane, chunk))
    rows: Rows = []
    for device in range(depth):
        forwards = [codes.forward(m, chunk * depth + device) for m, chunk in steps]
        backwards = [codes.backward(m, (chunks - 1 - chunk) * depth + device) for m, chunk in steps]
        warm_up = min(2 * (depth - 1 - device) + (chunks - 1) * depth, total)
        if plan.micro_batches == depth:
            warm_up = total
        row = forwards[:warm_up]
        for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
            row += (forward, backward)
        rows.append(row + backwards[total - warm_up :])
    return rows


def _cap(placement: Placement, micro_batches: int) -> int:
    depth, chunks = placement.depth, placement.chunks
    return (
        min(2 * (depth - 1) + (chunks - 1) * depth + 1, micro_batches * chunks)
        if (micro_batches != depth)
        else micro_batches * chunks
    )


INTERLEAVED = Method(
    name="1f1b_int",
    title="1F1B-Int",
    family=ONE_DIRECTION,
    description="interleaved 1F1B, v chunks per device (Megatron-LM)",
    placements=("cyclic",),
    chunks=2,
    any_chunks=True,
    bidirectional=False,
    needs="N multiple of D",
    layout="megatron",
    sync_mode="late",
    order=order,
    default_cap=_cap,
    multiple_of_depth=True,
)
