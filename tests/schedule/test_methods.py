"""Every method keeps its promises: golden makespans and peaks, one bubble formula each."""

from __future__ import annotations

import pytest

from bitpipe.schedule import ScheduleSpec, check, evaluate, generate, lower


def bubble(method: str, depth: int, micro_batches: int, **more: object) -> float:
    schedule = generate(ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches, **more))  # type: ignore[arg-type]
    check(lower(schedule, sync="eager"))
    return evaluate(schedule).bubble_ratio


@pytest.mark.parametrize("depth", range(2, 33, 2))
def test_the_units_have_the_paper_s_bubble_ratios_exactly(depth: int) -> None:
    n = depth
    assert bubble("bitpipe", depth, n) == pytest.approx((depth - 2) / (3 * n + depth - 2), abs=1e-12)
    assert bubble("chimera", depth, n) == pytest.approx((depth - 2) / (1.5 * n + depth - 2), abs=1e-12)


@pytest.mark.parametrize(("depth", "micro_batches"), [(2, 2), (3, 6), (4, 4), (4, 8), (8, 32)])
def test_one_direction_methods_waste_depth_minus_one(depth: int, micro_batches: int) -> None:
    n = micro_batches
    for method in ("gpipe", "dapple"):
        assert bubble(method, depth, n) == pytest.approx((depth - 1) / (n + depth - 1), abs=1e-12)
    assert bubble("1f1b_int", depth, n) == pytest.approx((depth - 1) / (2 * n + depth - 1), abs=1e-12)
