"""Repeats: means, intervals and ratios formed within each repeat."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitpipe.errors import InputError
from experiments.composing.sweep import Sweep, plan
from experiments.records.record import Record, Status
from experiments.running.bootstrap import bootstrap_ratio
from experiments.running.execute import run_block
from experiments.running.repeats import combined, count, paired_ratio, rates, t_interval
from experiments.running.skip import pending

Plan = Callable[..., Sweep]
RANKS = "model=bert_tiny model.layers=4 depth=2 micro_batches=2 iterations=3 measured=2 wandb.mode=disabled"


def metrics(*seconds: float) -> dict[str, object]:
    """What one repeat of a cell with a global batch of 6 says, two iterations counted."""
    mean = fmean(seconds[-2:])
    return {
        "samples_per_s": 6 / mean,
        "iteration_seconds": mean,
        "bubble_ratio": 0.25,
        "iterations_seconds": list(seconds),
        "losses": [1.0] * len(seconds),
        "global_batch": 6,
    }


def measured(*repeats: tuple[float, ...], measurement: str = "m") -> dict[str, object]:
    return combined([metrics(*one) for one in repeats], measured=2, measurement=measurement)


def test_one_repeat_says_nothing_of_repeats() -> None:
    assert measured((9.0, 1.0, 3.0)) == metrics(9.0, 1.0, 3.0)
    assert count(metrics(1.0, 1.0)) == 1


def test_three_repeats_keep_every_iteration_and_give_means_and_an_interval() -> None:
    found = measured((9.0, 1.0, 3.0), (9.0, 2.0, 4.0), (9.0, 1.0, 1.0))
    assert found["iterations_seconds"] == [9.0, 1.0, 3.0, 9.0, 2.0, 4.0, 9.0, 1.0, 1.0]
    assert found["iteration_seconds"] == pytest.approx(fmean([2.0, 3.0, 1.0]))
    assert found["samples_per_s"] == pytest.approx(fmean([3.0, 2.0, 6.0]))
    assert (found["samples_per_s_min"], found["samples_per_s_max"]) == (2.0, 6.0)
    assert (found["iteration_seconds_min"], found["iteration_seconds_max"]) == (1.0, 4.0)
    assert rates(found, 2) == pytest.approx([3.0, 2.0, 6.0])


def test_the_interval_is_students() -> None:
    """Three values with mean 2 and standard deviation 1: 2 ± 4.3027/√3."""
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((0.0, 2 + 4.30265 / 3**0.5), abs=1e-4)
    assert t_interval([11.0, 12.0, 13.0]) == pytest.approx((12 - 2.48414, 12 + 2.48414), abs=1e-4)


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5), st.floats(0.5, 2.0))
def test_what_slows_a_whole_repeat_drops_out_of_the_ratio(slow: list[float], faster: float) -> None:
    one = measured(*((s, s, s) for s in slow))
    other = measured(*((s * faster, s * faster, s * faster) for s in slow))
    assert paired_ratio(one, other, 2) == pytest.approx((faster, faster, faster), rel=1e-9)


def test_only_cells_of_one_rotation_are_paired() -> None:
    one, other = (measured((1.0, 1.0), (1.0, 2.0), measurement=name) for name in "ab")
    assert paired_ratio(one, other, 2) is None
    assert paired_ratio(metrics(1.0, 1.0), metrics(1.0, 1.0), 2) is None


def test_a_setting_of_the_sweep_that_changes_no_cell(planned: Plan) -> None:
    once, thrice = (planned(f"{RANKS} backend=virtual {more}") for more in ("", "repeats=3"))
    assert (once.settings.repeats, thrice.settings.repeats) == (1, 3)
    assert once.cells == thrice.cells
    assert planned("backend=simulate repeats=3").settings.repeats == 1
    with pytest.raises(InputError, match="repeats=0"):
        planned(f"{RANKS} backend=virtual repeats=0")


@pytest.mark.parametrize(("launcher", "more", "repeats"), [
    ("slurm", "backend=cuda", 3),
    ("slurm", "backend=cuda pack=false", 1),
    ("slurm", "backend=cuda repeats=2", 2),
    ("slurm", "backend=virtual", 1),
    ("local", "backend=virtual", 1),
])  # fmt: skip
def test_packed_cells_on_gpus_are_measured_three_times(
    load: Callable[..., object], launcher: str, more: str, repeats: int
) -> None:
    sweep = plan(load, [[*RANKS.split(), *more.split()]], launcher=launcher)  # type: ignore[arg-type]
    assert sweep.settings.repeats == repeats


@pytest.mark.parametrize("backend", ["virtual", "emulate"])
def test_ranks_measure_a_block_repeatedly_and_its_cells_are_paired(planned: Plan, backend: str) -> None:
    wanted = f"{RANKS} backend={backend} repeats=3 max_lag=1"
    jobs = [f"{wanted} method={name}" for name in ("bitpipe", "dapple")]
    sweep = planned(*jobs)
    (block,) = sweep.blocks
    one, other = run_block(block, lambda record, name: None)
    for record in (one, other):
        assert record.status is Status.OK, record.cause
        assert len(record.metrics["iterations_seconds"]) == 9
        if backend == "emulate":
            assert record.metrics["samples_per_s"] == pytest.approx(fmean(rates(record.metrics, 2)))
        assert Record.of(record.document()).metrics["repeats"] == 3
    paired = (
        bootstrap_ratio(one.metrics, other.metrics)
        if backend == "virtual"
        else paired_ratio(one.metrics, other.metrics, 2)
    )
    assert paired is not None
    assert paired[1] <= paired[0] <= paired[2]

    assert pending(sweep, lambda line: None) == []
    said: list[str] = []
    (again,) = pending(planned(*(job.replace("repeats=3", "repeats=4") for job in jobs)), said.append)
    assert again.cells == block.cells
    assert "2 of 2 cells have fewer than 4 repeats" in said[0]
