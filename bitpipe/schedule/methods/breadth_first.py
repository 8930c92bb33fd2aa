"""Breadth-first pipeline parallelism (Lamy-Poirier, MLSys 2023), also looped BFS: one stage after another.

Every local stage runs all its micro-batches before the next one, so that with sharded data parallelism its
weights are gathered and its gradients reduced once. GPipe's memory, 1F1B-Int's bubble: makespan
3N + 3(D−1)/v for N ≥ D, 3D + 3(N−1)/v below.
"""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import NEVER, ONE_DIRECTION, Method, Plan


def order(plan: Plan) -> Rows:
    """Forwards chunk by chunk, backwards from the last chunk to the first, micro-batches ascending."""
    codes, depth, count = plan.codes, plan.placement.depth, range(plan.micro_batches)
    rows: Rows = []
    for device in range(depth):
        stages = range(device, codes.stages, depth)
        forwards = [codes.forward(m, stage) for stage in stages for m in count]
        rows.append(forwards + [codes.backward(m, stage) for stage in reversed(stages) for m in count])
    return rows


BREADTH_FIRST = Method(
    name="breadth_first",
    title="Breadth-first",
    family=ONE_DIRECTION,
    description="all micro-batches of a chunk before the next: each gradient is final at once",
    placements=("cyclic",),
    chunks=2,
    any_chunks=True,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: placement.chunks * micro_batches,
    splits=NEVER,
)
