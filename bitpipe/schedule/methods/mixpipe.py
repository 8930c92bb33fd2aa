"""MixPipe: bidirectional, with a tunable number of injected micro-batches.

As modelled: only its abstract is public (tunable injection, mixed order). It is the list rule at
one chunk per device and direction, under a cap between D (Chimera's memory) and ⌊(3D−2)/2⌋ Ma
(its "maximum K", section 1.5), which is the default.
"""

from bitpipe.schedule.bounds import early_forward_cap
from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.methods.base import TWO_DIRECTIONS, Method, Plan


def order(plan: Plan) -> Rows:
    return list_rule(plan.codes, plan.cap)


MIXPIPE = Method(
    name="mixpipe",
    title="MixPipe",
    family=TWO_DIRECTIONS,
    description="bidirectional, tunable injection; as modelled, at cap ⌊(3D−2)/2⌋ unless another is given",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=True,
    needs="D even",
    layout="replica_aware",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: min(early_forward_cap(placement.depth, 1), micro_batches),
    tunable_cap=True,
)
