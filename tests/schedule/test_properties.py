"""What holds for every schedule: valid, deadlock-free, never above the cap or below the bound."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bitpipe.schedule import METHODS, ScheduleSpec, check, describe, generate, held_chunks, lower
from bitpipe.schedule.methods.base import ASKED, PARTLY


@st.composite
def specs(draw: st.DrawFn) -> ScheduleSpec:
    """Any method with any of its parameters."""
    method = METHODS[draw(st.sampled_from(sorted(METHODS)))]
    depth = 2 * draw(st.integers(1, 3)) if method.even_depth else draw(st.integers(2, 7))
    step = method.chunk_step
    chunks = step * draw(st.integers(1, 4 // step)) if method.any_chunks else method.chunks
    micro_batches = method.nearest(depth, draw(st.integers(1, 14)))
    cap, early = None, False
    if method.tunable_cap and draw(st.booleans()):
        early = draw(st.booleans())
        cap = None if early else draw(st.integers(chunks, chunks * depth + depth))
    return ScheduleSpec(
        method=method.name,
        depth=depth,
        micro_batches=micro_batches,
        chunks=chunks,
        placement=draw(st.sampled_from(method.placements)),
        cap=cap,
        early_forward=early,
        split_backward=method.splits in (ASKED, PARTLY) and draw(st.booleans()),
        pad=method.multiple_of_depth or draw(st.booleans()),
    )


@settings(max_examples=80, deadline=None)
@given(spec=specs(), tied=st.booleans(), width=st.integers(1, 2), late=st.booleans())
def test_every_schedule_is_valid(spec: ScheduleSpec, tied: bool, width: int, late: bool) -> None:
    schedule = generate(spec)
    sync = "late" if late else "eager"
    if METHODS[spec.method].bidirectional and spec.depth % 2:
        sync = "none"
    program = lower(schedule, sync=sync, width=width, tied=tied)
    check(program)
    assert schedule.cap is not None
    assert max(held_chunks(schedule)) <= schedule.cap
    assert schedule.micro_batches - len(schedule.empty) == spec.micro_batches
    got = describe(schedule)
    assert got.makespan >= got.lower_bound - 1e-9
    # A buffer per held activation, one per gradient on its way, and a few posted ahead.
    assert max(program.slots) <= schedule.cap + 8 + 2 * spec.depth


@settings(max_examples=40, deadline=None)
@given(depth=st.integers(2, 8), micro_batches=st.integers(1, 20), chunks=st.integers(1, 4), data=st.data())
def test_any_cap_from_v_upward_is_feasible(
    depth: int, micro_batches: int, chunks: int, data: st.DataObject
) -> None:
    cap = data.draw(st.integers(chunks, max(chunks, chunks * depth - 1)))
    schedule = generate(
        ScheduleSpec(method="bitpipe", depth=depth, micro_batches=micro_batches, chunks=chunks, cap=cap)
    )
    check(lower(schedule, sync="none"))
    assert max(held_chunks(schedule)) <= cap
