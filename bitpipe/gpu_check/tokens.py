"""Random micro-batches: timings and memory do not depend on what the tokens say."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bitpipe.data import TokenSource
from bitpipe.models import ModelConfig
from bitpipe.models.micro_batch import MicroBatch


@dataclass(frozen=True)
class RandomTokens:
    """A data set of random tokens, every one of which has a loss."""

    name: str = "random"
    fingerprint: str = "random"

    def source(
        self, model: ModelConfig, *, micro_batch_size: int, micro_batches: int, seed: int
    ) -> TokenSource:
        return RandomSource(model, micro_batch_size, micro_batches, seed)


@dataclass(frozen=True)
class RandomSource:
    """Micro-batches that depend on seed, step and index only."""

    model: ModelConfig
    size: int
    count: int
    seed: int

    def micro_batch(self, step: int, index: int) -> MicroBatch:
        generator = torch.Generator().manual_seed(self.seed + 10_007 * step + index)
        shape = self.size, self.model.sequence
        tokens, labels = torch.randint(self.model.vocabulary, (2, *shape), generator=generator)
        return MicroBatch(
            tokens=tokens, labels=labels, step=step, index=index, normaliser=self.count * labels.numel()
        )
