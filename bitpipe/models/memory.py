"""Memory without a GPU: what autograd keeps, counted; and stages of any size on fake tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor

from bitpipe.errors import choose
from bitpipe.models.config import ModelConfig, partition
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import build_chunk

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
STATE_BYTES = {"fp64": (8, 8, 16), "fp32": (4, 4, 8), "bf16": (2, 4, 12), "fp16": (2, 4, 12)}
"""Bytes per parameter of weight, gradient and Adam's state. Half precision keeps its gradient
sums, master weights and both moments in fp32: 18 bytes in all."""


class _Kept:
    """One saved tensor; counts its storage while it lives."""

    __slots__ = ("key", "meter", "tensor")

    def __init__(self, meter: ActivationMeter, key: int, tensor: Tensor) -> None:
        self.meter = meter
        self.key = key
        self.tensor = tensor

    def __del__(self) -> None:
        self.meter._release(self.key)


class ActivationMeter:
    """Bytes that autograd keeps for backward, by unique storage; parameters do not count.

    Use it as a context around forwards; backwards may come later. It costs about a microsecond
    per saved tensor and changes no result. Inputs count: a boundary activation that a stage
    received is kept by its first layer.

    Attributes:
        current: bytes kept now.
        peak: the most since the last :meth:`reset`.
    """

    def __init__(self, excluded: Iterable[Tensor] = ()) -> None:
        """``excluded``: parameters and what else is resident anyway."""
        self.current = 0
        self.peak = 0
        self._count: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._excluded = {tensor.untyped_storage()._cdata for tensor in excluded}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def reset(self) -> None:
        """Forget the peak."""
        self.peak = self.current

    def __enter__(self) -> ActivationMeter:
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    def _pack(self, tensor: Tensor) -> Tensor | _Kept:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._excluded:
            return tensor
        uses = self._count.get(key, 0)
        self._count[key] = uses + 1
        if not uses:
            size = storage.nbytes()
            self._bytes[key] = size
            self.current += size
            if self.current > self.peak:
                self.peak = self.current
        return _Kept(self, key, tensor.detach())  # an output would keep its own graph alive

    @staticmethod
    def _unpack(kept: Tensor | _Kept) -> Tensor:
        return kept.tensor if isinstance(kept, _Kept) else kept

    def _release(self, key: int) -> None:
        uses = self._count[key] - 1
        if uses:
            self._count[key] = uses
        else:
            del self._count[key]
            self.current -= self._bytes.pop(key)


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes of one copy of a stage, the activations of one micro-batch.

    Attributes:
        parameters: how many (not bytes).
        weights, gradients, optimizer: bytes by :data:`STATE_BYTES`.
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
    weight, gradient, state = STATE_BYTES[precision]
    return StageMemory(
        parameters=count,
        weights=count * weight,
        gradients=count * gradient,
        optimizer=count * state,
        activations=activations,
    )
