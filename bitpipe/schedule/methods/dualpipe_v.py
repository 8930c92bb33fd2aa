"""DualPipeV (DeepSeek and Sea AI Lab, 2025): DualPipe folded at its middle, one copy of the weights in V.

D devices, 2D stages; makespan 3N + (D−1)/2 with every backward split, D + ½ activations on every device.
"""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import PARTLY, ZERO_BUBBLE, Method, Plan
from bitpipe.schedule.methods.dualpipe import Phase, meeting


def order(plan: Plan) -> Rows:
    """DualPipe's steps; the two streams are a micro-batch's way there and its way back."""
    codes, depth, every = plan.codes, plan.placement.depth, range(plan.micro_batches)
    return [
        meeting(codes, depth, d, (Phase(d, every), Phase(2 * depth - 1 - d, every)), plan.split)
        for d in range(depth)
    ]


DUALPIPE_V = Method(
    name="dualpipe_v",
    title="DualPipeV",
    description="DualPipe folded in V, one copy of the weights",
    family=ZERO_BUBBLE,
    placements=("v",),
    chunks=2,
    any_chunks=False,
    bidirectional=False,
    needs="N ≥ 2D",
    layout="megatron",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: 2 * placement.depth + 1,
    splits=PARTLY,
    nearest=lambda depth, micro_batches: max(2 * depth, micro_batches),
)
