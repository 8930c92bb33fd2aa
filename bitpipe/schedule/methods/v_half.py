"""V-Half (Qi et al., *Pipeline Parallelism with Controllable Memory*, 2024): half of 1F1B's activations.

At most ⌊(D+2)/2⌋ on every device, one copy of the weights; makespan about 3N + 3D/2.
"""

from bitpipe.schedule.block_rule import block_rule
from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import ALWAYS, LESS_MEMORY, Method, Plan


def order(plan: Plan) -> Rows:
    """F at 2s and on the way back at 3D−2−s, I at 3D−1+g+2s and 6D−2+g−s; g = 3 for even D."""
    depth = plan.placement.depth
    gap = 0 if depth % 2 else 3
    return block_rule(
        plan.codes,
        lambda s: (2 * s, 3 * depth - 2 - s, 3 * depth - 1 + gap + 2 * s, 6 * depth - 2 + gap - s),
    )


V_HALF = Method(
    name="v_half",
    title="V-Half",
    family=LESS_MEMORY,
    description="V placement with half of 1F1B's activations, one copy of the weights",
    placements=("v",),
    chunks=2,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: min(2 * ((placement.depth + 2) // 2), 2 * micro_batches),
    splits=ALWAYS,
)
