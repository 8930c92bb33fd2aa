"""V-Min (Qi et al., *Pipeline Parallelism with Controllable Memory*, 2024): a third of 1F1B's activations.

At most ⌊(D+4)/3⌋ activations on every device, one copy of the weights; makespan about 3N + 2D.
"""

from bitpipe.schedule.block_rule import block_rule
from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import ALWAYS, LESS_MEMORY, Method, Plan


def order(plan: Plan) -> Rows:
    """F at s and on the way back at 2D−1−s, I at 2D+g+s and 4D+g−1−s; g = 2 where 3 divides D."""
    depth = plan.placement.depth
    gap = 0 if depth % 3 else 2
    return block_rule(
        plan.codes, lambda s: (s, 2 * depth - 1 - s, 2 * depth + gap + s, 4 * depth + gap - 1 - s)
    )


V_MIN = Method(
    name="v_min",
    title="V-Min",
    family=LESS_MEMORY,
    description="V placement with a third of 1F1B's activations, one copy of the weights",
    placements=("v",),
    chunks=2,
    any_chunks=False,
    bidirectional=False,
    needs="–",
    layout="megatron",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: min(2 * ((placement.depth + 4) // 3), 2 * micro_batches),
    splits=ALWAYS,
)
