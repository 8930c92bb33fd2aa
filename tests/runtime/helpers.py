"""Small jobs, random data and single-process training for the tests of this room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.data import TokenSource
from bitpipe.job import Job
from bitpipe.models import ModelConfig, partition
from bitpipe.models.micro_batch import IGNORE, MicroBatch
from bitpipe.models.transformer import Chunk, build_chunk
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
        return MicroBatch(tokens=tokens, labels=labels, step=step, index=index, normaliser=normaliser)

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


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Training on one process.

    Attributes:
        losses: per step.
        gradients: of the first step, by parameter name of :func:`named`.
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
        if not gradients:
            gradients = {n: p.grad.clone() for n, p in named(chunk, 0).items() if p.grad is not None}
        if job.clip_norm is not None:
            norms.append(torch.nn.utils.clip_grad_norm_(chunk.parameters(), job.clip_norm).item())
        adam.step()
    weights = {n: p.detach().clone() for n, p in named(chunk, 0).items()}
    return Reference(losses=tuple(losses), gradients=gradients, weights=weights, norms=tuple(norms))


def first_layers(job: Job, stages: int) -> Sequence[int]:
    parts = partition(job.model.layers, stages)
    return [sum(parts[:stage]) for stage in range(stages)]
