"""The lower bound: its closed forms, and that a solver-free search meets it where it is met."""

from __future__ import annotations

import pytest

from bitpipe.schedule import (
    PLACEMENTS,
    Placement,
    ScheduleSpec,
    cyclic,
    describe,
    early_forward_cap,
    generate,
    lower_bound,
)


def placement(depth: int, chunks: int, name: str = "v") -> Placement:
    return PLACEMENTS[name](depth, chunks).mirrored()


@pytest.mark.parametrize("depth", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["v", "cyclic"])
def test_the_closed_forms_of_two_directions(depth: int, chunks: int, name: str) -> None:
    where = placement(depth, chunks, name)
    for k in (1, 2, 4):
        n = k * depth
        at_depth = lower_bound(where, n, cap=chunks * depth)
        assert at_depth == pytest.approx(3 * n + 2 * (depth - 2) / chunks)
        early = lower_bound(where, n, cap=early_forward_cap(depth, chunks))
        if k > 1:
            assert early == pytest.approx(3 * n + 1.5 * (depth - 2) / chunks)
        split = lower_bound(where, n, cap=chunks * depth, split_backward=True)
        assert split == pytest.approx(3 * n + (depth - 2) / (2 * chunks))


def test_one_direction_loses_three_halves_per_device_and_chunk() -> None:
    for depth, n, chunks in ((4, 8, 1), (8, 8, 2), (5, 10, 3)):
        where = cyclic(depth, chunks)
        assert lower_bound(where, n) == pytest.approx(3 * n + 3 * (depth - 1) / chunks)


def check_early_forward(depth: int, micro_batches: int) -> None:
    got = describe(
        generate(ScheduleSpec(method="bitpipe", depth=depth, micro_batches=micro_batches, early_forward=True))
    )
    n = micro_batches
    assert got.makespan == got.lower_bound
    assert max(got.peak_activation_per_device) <= max(depth, (5 * depth - 2) / 4)
    if n >= 2 * depth:
        assert got.bubble_ratio == pytest.approx((depth - 2) / (4 * n + depth - 2))


@pytest.mark.parametrize("depth", range(2, 33, 2))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_early_forward_is_on_the_bound(depth: int, k: int) -> None:
    check_early_forward(depth, k * depth)


@pytest.mark.slow
@pytest.mark.parametrize("depth", range(2, 33, 2))
@pytest.mark.parametrize("k", range(4, 9))
def test_early_forward_is_on_the_bound_up_to_8d(depth: int, k: int) -> None:
    check_early_forward(depth, k * depth)


@pytest.mark.parametrize(("depth", "micro_batches"), [(4, 4), (4, 5), (4, 6), (8, 8), (8, 10), (8, 16)])
def test_the_split_backward_reaches_a_quarter_of_depth(depth: int, micro_batches: int) -> None:
    spec = ScheduleSpec(method="bitpipe", depth=depth, micro_batches=micro_batches, split_backward=True)
    got = describe(generate(spec))
    assert got.makespan == 3 * micro_batches + (depth - 2) / 4
    assert max(got.peak_activation_per_device) <= depth


@pytest.mark.parametrize(
    ("depth", "micro_batches", "gap"),
    [
        *((depth, n, 0.0) for depth, n in ((4, 8), (4, 32), (6, 24), (8, 16), (8, 32), (12, 24), (16, 32))),
        *((8, 64, 0.5), (32, 64, 0.0)),
        pytest.param(16, 64, 1.0, marks=pytest.mark.slow),
    ],
)
def test_how_close_the_list_rule_comes_at_the_peak_of_one_unit(
    depth: int, micro_batches: int, gap: float
) -> None:
    """Cap D·Ma and several units: on the bound but for long runs; a smaller gap is welcome here."""
    spec = ScheduleSpec(method="bitpipe", depth=depth, micro_batches=micro_batches, cap=2 * depth)
    assert describe(generate(spec)).distance_to_bound <= gap
