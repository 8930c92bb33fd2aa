"""GEMS (Jain et al., SC 2020): two copies of the model in opposite directions, one micro-batch at a time.

At most one activation per device: memory, not speed. Makespan (2D+1)N + D − 1.
"""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.methods.base import NEVER, TWO_DIRECTIONS, Method, Plan


def order(plan: Plan) -> Rows:
    """Micro-batches go down and up in turn; a device ends one before it begins the next."""
    codes = plan.codes
    turns = sorted(range(codes.micro_batches), key=lambda m: (codes.locals[m], codes.pipes[m]))
    rows: Rows = []
    for device in range(plan.placement.depth):
        stage = dict(plan.placement.held[device])
        steps = [(m, stage[codes.pipes[m]]) for m in turns]
        rows.append([code for m, s in steps for code in (codes.forward(m, s), codes.backward(m, s))])
    return rows


GEMS = Method(
    name="gems",
    title="GEMS",
    family=TWO_DIRECTIONS,
    description="two copies in opposite directions, one micro-batch at a time: least activations",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=True,
    needs="D even",
    layout="sequential",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: 1,
    splits=NEVER,
)
