"""Hanayo (Liu et al., SC 2023): waves through one copy of the weights, v = 2 × waves chunks in V.

Makespan 3N + 2(D−1)/w at N = D, the least for this placement; Chimera's unit is one wave folded. The
authors' text and code were not at hand: the order is the list rule's at the memory of D activations.
"""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.methods.base import ONE_DIRECTION, Method, Plan


def order(plan: Plan) -> Rows:
    """The list rule at cap vD."""
    return list_rule(plan.codes, plan.cap)


HANAYO = Method(
    name="hanayo",
    title="Hanayo",
    family=ONE_DIRECTION,
    description="waves through one copy of the weights; v is twice the number of waves",
    placements=("v",),
    chunks=2,
    any_chunks=True,
    bidirectional=False,
    needs="v even",
    layout="megatron",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: placement.chunks * min(placement.depth, micro_batches),
    tunable_cap=True,
    chunk_step=2,
)
