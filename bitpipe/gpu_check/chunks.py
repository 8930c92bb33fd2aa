"""How long forward and backward of a chunk take on this device, and what share of its peak that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

import torch
from torch.autograd.graph import get_gradient_edge

from bitpipe.gpu_check.tokens import RandomSource
from bitpipe.models import ModelConfig, arithmetic
from bitpipe.models.memory import DTYPES
from bitpipe.models.transformer import Chunk, build_chunk
from bitpipe.runtime.device import Device
from bitpipe.runtime.training.backward import backward
from bitpipe.runtime.training.gradients import Flat

_WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class ChunkTime:
    """Medians over repetitions that follow each other without a pause.

    Attributes:
        model, micro_batch_size, precision: of what.
        layers: transformer layers in the chunk.
        head: whether it ends with the LM head and the loss.
        forward, backward: seconds.
        layer_flops, head_flops: of one forward.
    """

    model: str
    micro_batch_size: int
    precision: str
    layers: int
    head: bool
    forward: float
    backward: float
    layer_flops: int
    head_flops: int

    def utilisation(self, peak: float) -> float:
        """Share of ``peak`` FLOP/s in forward and backward together (MFU)."""
        return 3 * (self.layer_flops + self.head_flops) / (self.forward + self.backward) / peak


def time_chunk(
    model: ModelConfig,
    micro_batch_size: int,
    *,
    layers: int,
    head: bool,
    device: Device,
    precision: str = "bf16",
    repeats: int = 20,
) -> ChunkTime:
    """Time a chunk of ``layers`` layers, gradients summed as in training."""
    dtype = DTYPES[precision]
    chunk = _chunk(model, layers, head, dtype, device)
    flat = Flat(chunk.parameters())
    batch = RandomSource(model, micro_batch_size, 1, 0).micro_batch(0, 0).to(device.place)
    shape = chunk.boundary(micro_batch_size)
    x = torch.randn(shape, dtype=dtype, device=device.place)
    one = torch.ones((), device=device.place)
    gradient = one if head else torch.randn(shape, dtype=dtype, device=device.place) * 1e-3
    marks = []
    for _ in range(_WARM_UP + repeats):
        begun = device.mark()
        y = chunk.forward(x.detach().requires_grad_(), batch)
        between = device.mark()
        backward(get_gradient_edge(y), gradient)
        marks.append((begun, between, device.mark()))
        del y
    device.synchronize()
    counted = marks[_WARM_UP:]
    del flat
    return ChunkTime(
        model=model.name,
        micro_batch_size=micro_batch_size,
        precision=precision,
        layers=layers,
        head=head,
        forward=median(device.seconds(a, b) for a, b, _ in counted),
        backward=median(device.seconds(b, c) for _, b, c in counted),
        layer_flops=layers * arithmetic.layer_forward_flops(model, micro_batch_size),
        head_flops=arithmetic.head_forward_flops(model, micro_batch_size) if head else 0,
    )


def _chunk(model: ModelConfig, layers: int, head: bool, dtype: torch.dtype, device: Device) -> Chunk:
    """A chunk from the middle of a model, or from its end."""
    parts = (1, layers) if head else (1, layers, 1)
    cut = replace(model, layers=sum(parts))
    return build_chunk(cut, parts, 1, seed=0, dtype=dtype, device=device.place)
