"""Half precision: fp32 sums and masters, loss scaling, one decision about overflow for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from injected import insert
from training import RandomData, job_of, links_of, model_of

from bitpipe.job import Job
from bitpipe.models.transformer import build_chunk
from bitpipe.runtime.block import prepare
from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.run import Run
from bitpipe.runtime.training.gradients import Flat
from bitpipe.runtime.training.precision import LossScale


@dataclass(frozen=True)
class Seen:
    """What one rank saw: loss scale and weights' checksums after every step."""

    scales: list[float]
    skipped: list[int]
    weights: list[dict[object, int]]
    losses: tuple[float, ...]
    norms: tuple[float, ...]


def train(world: World, run: Run, rank: int, at: int, interval: int) -> list[Seen] | None:
    """Train; before its last backward of step ``at``, one rank's gradients overflow."""
    member = Member(run, world)
    assert member.gradients is not None
    gradients = member.gradients
    scale = gradients.scale
    assert scale is not None
    scale._interval = interval
    seen = Seen([], [], [], (), ())
    last = max(i for i, action in enumerate(member.plan.actions) if action.is_compute)

    def overflow() -> None:
        next(iter(gradients.flats.values())).sum[3] = float("inf")

    while member.iteration < run.job.iterations:
        struck = member.iteration == at and world.rank == rank
        undo = insert(member.interpreter, last, overflow) if struck else lambda: None
        member.iterate()
        undo()
        seen.scales.append(scale.value)
        seen.skipped.append(scale.skipped)
        seen.weights.append({group: flat.checksum() for group, flat in gradients.flats.items()})
    mine = Seen(seen.scales, seen.skipped, seen.weights, tuple(member.losses), tuple(member.norms))
    everyone: list[Seen] | None = [mine] * world.size if world.rank == 0 else None
    dist.gather_object(mine, everyone)
    return everyone


def run_of(job: Job) -> Run:
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData())
    return run


@pytest.mark.parametrize(("method", "width"), [("bitpipe", 1), ("dapple", 2)])
def test_an_overflow_on_one_replica_alone_skips_the_step_on_every_rank(
    pool_of: Callable[[int], Pool], method: str, width: int
) -> None:
    job = job_of(method, 4, 4, width=width, precision="fp16", iterations=4)
    ranks = pool_of(job.ranks).call(train, run_of(job), 1, 2, 2)
    for seen in ranks:
        assert seen.scales == [65536.0, 131072.0, 65536.0, 65536.0], "grown after two good steps, then halved"
        assert seen.skipped == [0, 0, 1, 1]
        assert seen.weights[1] == seen.weights[2], "the step left every weight of every rank alone"
        assert all(seen.weights[2][group] != seen.weights[3][group] for group in seen.weights[2])
        assert all(seen.weights[0][group] != seen.weights[1][group] for group in seen.weights[0])


def test_the_gradient_norm_of_a_skipped_step_is_left_out(pool_of: Callable[[int], Pool]) -> None:
    job = job_of("dapple", 2, 2, precision="bf16", iterations=3, clip_norm=0.05)
    ranks = pool_of(2).call(train, run_of(job), 0, 1, 2000)
    for seen in ranks:
        assert seen.scales == [1.0, 1.0, 1.0], "bf16 needs no scale"
        assert seen.skipped == [0, 1, 1]
        assert len(seen.norms) == 2
        assert max(seen.norms) < 100


def mixed_reference(job: Job, dtype: torch.dtype, *, autocast: bool) -> list[float]:
    """Losses of mixed-precision training on one process with fp32 masters.

    By casting a copy of the weights, or by torch's autocast over fp32 weights.
    """
    masters = build_chunk(job.model, (job.model.layers,), 0, seed=job.seed, dtype=torch.float32)
    if not autocast:  # the runtime starts from rounded weights
        for weight in masters.parameters():
            weight.data = weight.data.to(dtype).float()
    copy = build_chunk(job.model, (job.model.layers,), 0, seed=job.seed, dtype=dtype)
    adam = torch.optim.Adam(masters.parameters(), lr=job.learning_rate)
    count = job.schedule.micro_batches * job.width
    source = RandomData().source(
        job.model, micro_batch_size=job.micro_batch_size, micro_batches=count, seed=job.seed
    )
    losses = []
    for step in range(job.iterations):
        adam.zero_grad()
        loss = 0.0
        for index in range(count):
            batch = source.micro_batch(step, index)
            if autocast:
                with torch.autocast("cpu", dtype):
                    part = masters(None, batch)
                part.backward()
            else:
                part = copy(None, batch)
                part.backward()
                for weight, wide in zip(copy.parameters(), masters.parameters(), strict=True):
                    assert weight.grad is not None
                    narrow = weight.grad.float()
                    wide.grad = narrow if wide.grad is None else wide.grad + narrow
                    weight.grad = None
            loss += part.item()
        losses.append(loss)
        adam.step()
        with torch.no_grad():
            for weight, wide in zip(copy.parameters(), masters.parameters(), strict=True):
                weight.copy_(wide)
    return losses


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", ["bitpipe", "dapple"])
def test_training_equals_one_process_with_masters(
    pool_of: Callable[[int], Pool], precision: str, method: str
) -> None:
    """Same casts, same fp32 sums: the losses agree far below half precision's own error."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    job = job_of(method, 4, 4, precision=precision, iterations=8, model=model_of("gpt"), learning_rate=3e-3)
    found = pool_of(4).call(train, run_of(job), 0, -1, 2000)[0].losses
    wanted = mixed_reference(job, dtype, autocast=False)
    assert found == pytest.approx(wanted, rel=2e-4)
    assert found[-1] < found[0]


def test_training_is_close_to_autocast(pool_of: Callable[[int], Pool]) -> None:
    """Autocast rounds at other places (its norms are fp32): equal within bf16's two decimal digits."""
    job = job_of("bitpipe", 4, 4, precision="bf16", iterations=8, model=model_of("gpt"), learning_rate=3e-3)
    found = pool_of(4).call(train, run_of(job), 0, -1, 2000)[0].losses
    assert found == pytest.approx(mixed_reference(job, torch.bfloat16, autocast=True), rel=5e-3)


def test_small_gradients_add_up_in_fp32() -> None:
    """A sum in bf16 would stall: 1 + 2⁻⁹ rounds to 1."""
    weight = torch.nn.Parameter(torch.zeros(16, dtype=torch.bfloat16))
    flat = Flat([weight])
    for value in (1.0, *[2**-9] * 8):
        (weight * value).sum().backward()
    assert flat.sum[:16].tolist() == [1 + 8 * 2**-9] * 16
    assert flat.sum.dtype == torch.float32


def test_full_precision_has_no_scale() -> None:
    assert LossScale.of("fp32", torch.device("cpu")) is None
    assert LossScale.of("fp64", torch.device("cpu")) is None
