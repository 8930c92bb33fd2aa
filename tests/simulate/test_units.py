"""Programs in the paper's unit of time."""

from __future__ import annotations

import pytest

from bitpipe.schedule import ScheduleSpec, evaluate, generate, lower
from bitpipe.simulate import simulate_units


@pytest.mark.parametrize("method", ["gpipe", "dapple", "1f1b_int", "chimera", "bitpipe"])
@pytest.mark.parametrize(("depth", "micro_batches"), [(4, 4), (4, 8), (8, 16)])
def test_without_communication_the_engine_agrees_with_the_evaluation_of_the_schedule(
    method: str, depth: int, micro_batches: int
) -> None:
    schedule = generate(ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches))
    program = lower(schedule, sync="late")
    timeline = simulate_units(program)
    assert timeline.unit == "stage forward"
    expected = evaluate(schedule)
    assert timeline.makespan == pytest.approx(expected.makespan)
    assert timeline.bubble_ratio == pytest.approx(expected.bubble_ratio)


@pytest.mark.parametrize("depth", [2, 4, 8, 16, 32])
def test_bitpipes_unit_has_the_paper_s_bubble_ratio(depth: int) -> None:
    program = lower(generate(ScheduleSpec(method="bitpipe", depth=depth, micro_batches=depth)), sync="none")
    ratio = simulate_units(program).bubble_ratio
    assert ratio == pytest.approx((depth - 2) / (3 * depth + depth - 2))


def test_concatenation_takes_26_and_a_half() -> None:
    program = lower(generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=8)), sync="none")
    assert simulate_units(program).makespan == 26.5


def test_eager_sync_hides_all_but_the_last_stage_and_late_sync_hides_nothing() -> None:
    schedule = generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4))
    ends = {
        sync: simulate_units(lower(schedule, sync=sync), all_reduce=0.5).makespan
        for sync in ("eager", "late")
    }
    # Every device has four stages to reduce after 14 units of compute; only one cannot be hidden.
    assert ends["late"] == pytest.approx(14 + 4 * 0.5)
    assert ends["eager"] == pytest.approx(14 + 0.5)


def test_a_transfer_delays_what_depends_on_it() -> None:
    program = lower(generate(ScheduleSpec(method="gpipe", depth=4, micro_batches=1)), sync="none")
    assert simulate_units(program, transfer=0.1).makespan == pytest.approx(12 + 6 * 0.1)
