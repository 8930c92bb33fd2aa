"""Chimera: two pipes in opposite directions, one chunk per device and direction."""

from bitpipe.schedule.codes import Rows
from bitpipe.schedule.list_rule import list_rule
from bitpipe.schedule.list_scheduling import rows_by_start
from bitpipe.schedule.methods.base import TWO_DIRECTIONS, Method, Plan


def order(plan: Plan) -> Rows:
    """Chimera's public lattice, units of D micro-batches concatenated.

    Forwards and backwards take one slot each: with i the number in the unit and direction, F of
    stage s lies in slot 2i + s and B in slot 2i + 2D−1−s; units follow each other every 2D slots.
    With an odd D the slots of the two directions collide, and the list rule orders the actions.
    """
    if plan.codes.split_backward or plan.placement.depth % 2:
        return list_rule(plan.codes, plan.cap)
    codes, depth = plan.codes, plan.placement.depth
    half = depth // 2
    slots: list[int] = []
    for local in codes.locals:
        unit, i = divmod(local, half)
        first = 2 * depth * unit + 2 * i
        slots += range(first, first + 2 * depth)
    return rows_by_start(codes, slots)


CHIMERA = Method(
    name="chimera",
    title="Chimera",
    family=TWO_DIRECTIONS,
    description="two pipes in opposite directions, units concatenated",
    placements=("sequential",),
    chunks=1,
    any_chunks=False,
    bidirectional=True,
    needs="D even",
    layout="sequential",
    sync_mode="eager",
    order=order,
    default_cap=lambda placement, micro_batches: min(placement.depth, micro_batches),
)
