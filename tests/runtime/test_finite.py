"""What is not finite is blamed on the step that made it; weights are never ruined in silence."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from injected import insert
from training import RandomData, job_of, links_of

from bitpipe.runtime.block import prepare
from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.failure import RankFailure
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.run import Run
from bitpipe.runtime.training.precision import LossScale, TooManySkipped


def ruin(world: World, run: Run, at: int, value: float, what: str) -> int:
    """Train; in step ``at`` a gradient, or after it a weight, of rank 1 becomes ``value``."""
    member = Member(run, world)
    gradients = member.gradients
    assert gradients is not None
    last = max(i for i, action in enumerate(member.plan.actions) if action.is_compute)
    flat = next(iter(gradients.flats.values()))

    def strike() -> None:
        flat.sum[3] = value

    step = gradients.step

    def step_and_strike() -> None:
        step()
        flat.values[3] = value

    while member.iteration < run.job.iterations:
        struck = member.iteration == at and world.rank == 1
        undo = insert(member.interpreter, last, strike) if struck and what == "gradient" else lambda: None
        gradients.step = step_and_strike if struck and what == "weights" else step  # type: ignore[method-assign]
        member.iterate()
        undo()
    return member.iteration


@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize(("at", "value"), [(0, math.inf), (1, math.nan), (2, -math.inf)])
def test_a_gradient_that_is_not_finite_ends_the_run_in_its_step(
    at: int, value: float, clip_norm: float | None
) -> None:
    job = replace(job_of("dapple", 2, 2, iterations=3), clip_norm=clip_norm)
    (run,) = prepare([job], clock="virtual", links=[links_of(job)], data=RandomData())
    with (
        Pool(2) as pool,
        pytest.raises(RankFailure, match=rf"gradient of SYNC@1 is .* in step {at}") as caught,
    ):
        pool.call(ruin, run, at, value, "gradient")
    assert caught.value.cause.rank == 1


def test_weights_that_are_not_finite_after_the_last_step_end_the_run() -> None:
    job = job_of("bitpipe", 2, 2, iterations=2)
    (run,) = prepare([job], clock="virtual", links=[links_of(job)], data=RandomData())
    with Pool(2) as pool, pytest.raises(RankFailure, match=r"weights of SYNC@. are inf in step 1"):
        pool.call(ruin, run, 1, math.inf, "weights")


def settled(world: World, steps: int, bad: int) -> tuple[float, float, int, bool]:
    """The scale after ``bad`` overflows and then good steps; and whether a good step's sums are finite."""
    scale = LossScale(torch.device("cpu"), patience=1000)
    sums = torch.ones(4)
    for step in range(steps):
        sums = torch.full((4,), math.nan if step < bad else scale.seed.item())
        scale.settle([sums])
    return scale.value, scale.seed.item(), scale.skipped, bool(torch.isfinite(sums).all())


def test_the_loss_scale_has_a_floor() -> None:
    """After 200 bad steps it had become 0, and the next good step's gradients infinite and not skipped."""
    with Pool(2) as pool:
        assert pool.call(settled, 201, 200) == (1.0, 1.0, 200, True)


def overflowing(world: World) -> None:
    scale = LossScale(torch.device("cpu"))
    for step in range(60):
        scale.settle([torch.full((4,), math.inf if step % 30 else 1.0)])


def test_a_run_that_only_skips_ends_and_says_why() -> None:
    with Pool(2) as pool, pytest.raises(RankFailure, match="too many skipped steps") as caught:
        pool.call(overflowing)
    assert TooManySkipped.__name__ in caught.value.cause.message
    assert "20 times in a row, the last time at loss scale 1" in caught.value.cause.message


def test_overflows_with_good_steps_between_do_not_end_a_run() -> None:
    scale = LossScale(torch.device("cpu"))
    for step in range(200):
        scale._update(bool(step % 15))
    assert scale.value == 1.0
