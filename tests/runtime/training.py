"""Small jobs, random data, and the same training on ranks and on one process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.data import TokenSource
from bitpipe.job import Job
from bitpipe.models import ModelConfig, partition
from bitpipe.models.micro_batch import IGNORE, MicroBatch
from bitpipe.models.transformer import Chunk, build_chunk
from bitpipe.runtime.block import run_block
from bitpipe.runtime.clocks.clock import Nominal
from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.result import RunResult
from bitpipe.runtime.run import Run
from bitpipe.schedule import ScheduleSpec


@dataclass(frozen=True)
class RandomData:
    """Random tokens; a masked-LM micro-batch has a random number of loss tokens."""

    name: str = "random"
    fingerprint: str = "random"

    def source(
        self, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> TokenSource:
        return RandomSource(model, micro_batch_size, micro_batches, seed)


@dataclass(frozen=True)
class RandomSource:
    model: ModelConfig
    size: int
    count: int
    seed: int

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        assert 0 <= index < self.count
        pairs = [self._draw(step, i) for i in range(self.count)]
        normaliser = sum(int((labels != IGNORE).sum()) for _, labels in pairs)
        tokens, labels = pairs[index]
        follows = tokens[:, 0] % 2 if self.model.next_sentence else None
        return MicroBatch(
            tokens=tokens,
            labels=labels,
            step=step,
            index=index,
            normaliser=normaliser,
            follows=follows,
            samples=self.size * self.count,
        )

    def _draw(self, step: int, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed + 10007 * step + index)
        shape = self.size, self.model.sequence
        tokens = torch.randint(self.model.vocabulary, shape, generator=generator)
        labels = torch.randint(self.model.vocabulary, shape, generator=generator)
        if self.model.family == "bert":
            labels[torch.rand(shape, generator=generator) > 0.4] = IGNORE
        return tokens, labels


def model_of(family: str = "bert", **changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "name": f"{family}_test",
        "family": family,
        "layers": 8,
        "heads": 2,
        "hidden": 16,
        "sequence": 8,
        "vocabulary": 40,
        "dropout": 0.1,
    }
    return ModelConfig(**{**values, **changes})


def job_of(method: str, depth: int, micro_batches: int, *, width: int = 1, **changes: Any) -> Job:
    spec = {
        k: changes.pop(k)
        for k in ("chunks", "placement", "cap", "early_forward", "split_backward", "pad")
        if k in changes
    }
    values: dict[str, Any] = {
        "width": width,
        "micro_batch_size": 2,
        "sync": "eager",
        "layout": "replica_aware",
        "model": model_of(),
        "precision": "fp64",
        "learning_rate": 1e-3,
        "seed": 5,
        "iterations": 5,
        "measured": 2,
    }
    return Job(
        schedule=ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches, **spec),
        **{**values, **changes},
    )


def links_of(job: Job, *, devices_per_node: int = 8, bandwidth: float = 1e9, latency: float = 1e-6) -> Links:
    layout = RankLayout(
        name=job.layout, width=job.width, depth=job.schedule.depth, devices_per_node=devices_per_node
    )
    near, far = Link(bandwidth=bandwidth, latency=latency), Link(bandwidth=bandwidth / 8, latency=5 * latency)
    return Links(layout=layout, p2p_intra=near, p2p_inter=far, all_reduce_intra=near, all_reduce_inter=far)


def free_links(job: Job) -> Links:
    free = Link(bandwidth=1e15, latency=0.0)
    layout = links_of(job).layout
    return Links(layout=layout, p2p_intra=free, p2p_inter=free, all_reduce_intra=free, all_reduce_inter=free)


def emulated(jobs: Sequence[Job], nominal: Sequence[Nominal], pool: Pool) -> list[RunResult]:
    links = [free_links(job) for job in jobs]
    return run_block(jobs, clock="deadline", links=links, data=None, nominal=nominal, pool=pool)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Training on one process.

    Attributes:
        losses: per step.
        gradients: of the first step, clipped, by parameter name of :func:`named`.
        weights: after the last step.
        norms: gradient norm per step.
    """

    losses: tuple[float, ...]
    gradients: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]
    norms: tuple[float, ...]


def named(chunk: Chunk, first_layer: int) -> dict[str, torch.nn.Parameter]:
    """Parameters by a name that does not depend on the partition."""
    found = {}
    for name, parameter in chunk.named_parameters():
        if name.startswith("layers."):
            number, _, rest = name.removeprefix("layers.").partition(".")
            name = f"layers.{first_layer + int(number)}.{rest}"
        found[name] = parameter
    return found


def reference(job: Job, data: RandomData, *, passes: int = 1) -> Reference:
    """Train the job's model on one process: one chunk, micro-batch after micro-batch, Adam."""
    dtype = {"fp32": torch.float32, "fp64": torch.float64}[job.precision]
    chunk = build_chunk(job.model, (job.model.layers,), 0, seed=job.seed, dtype=dtype)
    count = job.schedule.micro_batches * job.width
    source = data.source(job.model, micro_batch_size=job.micro_batch_size, micro_batches=count, seed=job.seed)
    adam = torch.optim.Adam(chunk.parameters(), lr=job.learning_rate)
    losses, norms = [], []
    gradients: dict[str, torch.Tensor] = {}
    for step in range(job.iterations):
        adam.zero_grad()
        batches = [source.micro_batch(step * passes + k, i) for k in range(passes) for i in range(count)]
        total = sum(batches[k * count].normaliser for k in range(passes))
        loss = 0.0
        for batch in batches:
            part = chunk(None, replace(batch, normaliser=total))
            part.backward()
            loss += part.item()
        losses.append(loss)
        if job.clip_norm is not None:
            norms.append(torch.nn.utils.clip_grad_norm_(chunk.parameters(), job.clip_norm).item())
        if not gradients:
            gradients = {n: p.grad.clone() for n, p in named(chunk, 0).items() if p.grad is not None}
        adam.step()
    weights = {n: p.detach().clone() for n, p in named(chunk, 0).items()}
    return Reference(losses=tuple(losses), gradients=gradients, weights=weights, norms=tuple(norms))


def first_layers(job: Job, stages: int) -> Sequence[int]:
    parts = partition(job.model.layers, stages)
    return [sum(parts[:stage]) for stage in range(stages)]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one rank held: by name of :func:`named`."""

    rank: int
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    gradients: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]


def train_on_ranks(world: World, run: Run) -> list[Trained] | None:
    """Run a job and return every rank's gradients of the first step and final weights.

    A tied embedding's copy on the last stage is called ``embedding.token`` as well; two copies on
    one rank must agree.
    """
    member = Member(run, world)
    member.iterate()
    gradients = _collect(member, lambda parameter: parameter.grad)
    while member.iteration < run.job.iterations:
        member.iterate()
    mine = Trained(
        rank=world.rank,
        losses=tuple(member.losses),
        norms=tuple(member.norms),
        gradients=gradients,
        weights=_collect(member, lambda parameter: parameter.detach()),
    )
    everyone: list[Trained] | None = [mine] * world.size if world.rank == 0 else None
    dist.gather_object(mine, everyone)
    return everyone


def _collect(member: Member, value: Callable[[Any], torch.Tensor | None]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    layers = first_layers(member.run.job, member.plan.stages)
    for (_, stage), chunk in member.chunks.items():
        for name, parameter in named(chunk, layers[stage]).items():
            if name == "head.decoder_weight" and member.run.job.model.tied_embeddings:
                name = "embedding.token"
            tensor = value(parameter)
            assert tensor is not None
            assert name not in found or torch.equal(found[name], tensor)
            found[name] = tensor.clone()
    return found


def worst_difference(trained: Sequence[Trained], expected: Reference) -> float:
    """Largest absolute difference of any loss, gradient or weight of any rank."""
    worst = 0.0
    seen = set()
    for rank in trained:
        pairs = zip(rank.losses, expected.losses, strict=True)
        worst = max(worst, *(abs(a - b) for a, b in pairs))
        for mine, theirs in ((rank.gradients, expected.gradients), (rank.weights, expected.weights)):
            assert mine
            for name, tensor in mine.items():
                worst = max(worst, (tensor - theirs[name]).abs().max().item())
        seen |= set(rank.weights)
    assert seen == set(expected.weights)
    return worst


def bytes_alive(world: World) -> int:
    """Bytes of all tensors that this rank (0) still holds, garbage included."""
    gc.unfreeze()
    tensors = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def hold(world: World) -> None:
    """Say which process this is, then be busy for longer than any test."""
    os.write(1, f"{os.getpid()}\n".encode())  # in one piece
    time.sleep(3600)
