"""Stages of any size on fake tensors: what a forward really keeps, to hold formulas against."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bitpipe.errors import choose
from bitpipe.models.config import ModelConfig, partition
from bitpipe.models.memory import DTYPES, ActivationMeter
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.precision import PRECISIONS
from bitpipe.models.transformer import build_chunk


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes of one copy of a stage, the activations of one micro-batch.

    Attributes:
        parameters: how many (not bytes).
        weights, gradients, optimizer: bytes by :data:`PRECISIONS`.
        activations: Ma of this stage, kept from forward to backward, logits included.
    """

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def resident(self) -> int:
        """Bytes that stay throughout."""
        return self.weights + self.gradients + self.optimizer


def stage_memory(
    model: ModelConfig,
    stages: int,
    stage: int,
    micro_batch_size: int,
    *,
    precision: str = "bf16",
) -> StageMemory:
    """Run one forward of a stage of any size on fake tensors: shapes, no data, about a second.

    Raises:
        InputError: more stages than layers, or an unknown precision.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    dtype = DTYPES[choose("precision", precision, DTYPES)]
    parts = partition(model.layers, stages)
    shape = (micro_batch_size, model.sequence)
    with FakeTensorMode():
        chunk = build_chunk(model, parts, stage, seed=0, dtype=dtype)
        tokens = torch.empty(shape, dtype=torch.int64)
        pairs = torch.empty(micro_batch_size, dtype=torch.int64) if model.next_sentence else None
        batch = MicroBatch(
            tokens=tokens,
            labels=tokens,
            step=0,
            index=0,
            normaliser=1,
            segments=tokens if pairs is not None else None,
            follows=pairs,
            samples=1,
        )
        x = None
        if stage:
            x = torch.empty(*shape, model.hidden, dtype=dtype, requires_grad=True)
        data = [tokens] if pairs is None else [tokens, pairs]
        meter = ActivationMeter([*chunk.parameters(), *data])
        with meter:
            output = chunk(x, batch)
        activations = meter.current
        count = sum(weight.numel() for weight in chunk.parameters())
        del output
    each = PRECISIONS[precision]
    return StageMemory(
        parameters=count,
        weights=count * each.element,
        gradients=count * each.gradient,
        optimizer=count * each.state,
        activations=activations,
    )
