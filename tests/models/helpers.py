"""Tiny models and batches for the tests of this room."""

from __future__ import annotations

from typing import Any

import torch

from bitpipe.models import ModelConfig, partition
from bitpipe.models.micro_batch import IGNORE, MicroBatch
from bitpipe.models.transformer import Chunk, build_chunk


def tiny(family: str = "bert", **changes: Any) -> ModelConfig:
    values: dict[str, Any] = {
        "name": f"{family}_test",
        "family": family,
        "layers": 5,
        "heads": 2,
        "hidden": 16,
        "sequence": 8,
        "vocabulary": 40,
    }
    return ModelConfig(**{**values, **changes})


def random_batch(model: ModelConfig, *, size: int = 3, step: int = 0, index: int = 0) -> MicroBatch:
    generator = torch.Generator().manual_seed(1000 * step + index)
    tokens = torch.randint(model.vocabulary, (size, model.sequence), generator=generator)
    labels = torch.randint(model.vocabulary, (size, model.sequence), generator=generator)
    if model.family == "bert":
        labels[torch.rand(labels.shape, generator=generator) > 0.4] = IGNORE
    return MicroBatch(tokens=tokens, labels=labels, step=step, index=index, normaliser=50)


def build(
    model: ModelConfig, stages: int, *, seed: int = 3, dtype: torch.dtype = torch.float64
) -> list[Chunk]:
    parts = partition(model.layers, stages)
    chunks: list[Chunk] = []
    for stage in range(stages):
        shared = chunks[0].tied if stage and stage == stages - 1 else None
        chunks.append(build_chunk(model, parts, stage, seed=seed, dtype=dtype, embedding=shared))
    return chunks


def loss_of(chunks: list[Chunk], batch: MicroBatch) -> torch.Tensor:
    x = None
    for chunk in chunks:
        x = chunk(x, batch)
    assert x is not None
    return x
