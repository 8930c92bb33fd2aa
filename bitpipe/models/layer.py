"""The transformer layer that both families share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitpipe.models.config import ModelConfig
from bitpipe.models.seeding import mix

STANDARD_DEVIATION = 0.02


def parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """An uninitialised parameter."""
    return nn.Parameter(torch.empty(shape, dtype=dtype, device=device))


def draw(weight: Tensor, *seed: int, std: float = STANDARD_DEVIATION) -> None:
    """Fill a matrix with normal numbers that depend on ``seed`` and the device kind only.

    Numbers are drawn in float32 (float64 for float64) and then rounded to the weight's type.
    """
    if weight.is_meta:
        return
    generator = torch.Generator(device=weight.device).manual_seed(mix(*seed))
    wide = weight.dtype if weight.dtype is torch.float64 else torch.float32
    with torch.no_grad():
        drawn = torch.empty(weight.shape, dtype=wide, device=weight.device)
        weight.copy_(drawn.normal_(0.0, std, generator=generator))


class Dropout:
    """Explicit masks, so that results depend neither on the partition nor on the rank.

    A layer's masks for all its sites are one draw, seeded by (seed, step, global micro-batch,
    layer). Sixteen random bits decide about an element: four times cheaper on a CPU than
    ``bernoulli_``, and the probability is exact to 2⁻¹⁶.
    """

    def __init__(self, probability: float, seed: int, layer: int) -> None:
        threshold = round(probability * 65536)
        self.active = threshold > 0
        self.scale = 65536 / (65536 - threshold)
        self._threshold = threshold - 32768
        self._seed = seed
        self._layer = layer
        self._generator: torch.Generator | None = None

    def masks(self, sites: int, like: Tensor, step: int, index: int) -> Tensor:
        """Bool masks (sites, *like.shape); multiply what they keep by :attr:`scale`."""
        if self._generator is None or self._generator.device != like.device:
            self._generator = torch.Generator(device=like.device)
        self._generator.manual_seed(mix(self._seed, step, index, self._layer))
        count = sites * like.numel()
        bits = torch.empty(-(-count // 4), dtype=torch.int64, device=like.device)
        bits.random_(-(2**63), None, generator=self._generator)
        return (bits.view(torch.int16)[:count] >= self._threshold).view(sites, *like.shape)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_generator": None}


class Layer(nn.Module):
    """Pre-norm attention and MLP, h → 4h → h, 12h² + 13h parameters.

    Layer norm comes first in both halves, as in Megatron-LM for BERT and GPT alike. Attention
    is ``scaled_dot_product_attention`` (fused where the device can), causal for GPT and full
    for BERT. Dropout follows the attention's and the MLP's projection; attention
    probabilities are not dropped, fused kernels having no reproducible mask for them.
    """

    def __init__(
        self, model: ModelConfig, number: int, *, seed: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """``number`` counts the model's layers from 1; with ``seed`` it decides the weights."""
        super().__init__()
        h = model.hidden
        self.heads = model.heads
        self.causal = model.family == "gpt"
        self.dropout = Dropout(model.dropout, seed, number)
        self.norm1_weight = parameter(h, dtype=dtype, device=device)
        self.norm1_bias = parameter(h, dtype=dtype, device=device)
        self.qkv_weight = parameter(3 * h, h, dtype=dtype, device=device)
        self.qkv_bias = parameter(3 * h, dtype=dtype, device=device)
        self.out_weight = parameter(h, h, dtype=dtype, device=device)
        self.out_bias = parameter(h, dtype=dtype, device=device)
        self.norm2_weight = parameter(h, dtype=dtype, device=device)
        self.norm2_bias = parameter(h, dtype=dtype, device=device)
        self.up_weight = parameter(4 * h, h, dtype=dtype, device=device)
        self.up_bias = parameter(4 * h, dtype=dtype, device=device)
        self.down_weight = parameter(h, 4 * h, dtype=dtype, device=device)
        self.down_bias = parameter(h, dtype=dtype, device=device)
        residual = STANDARD_DEVIATION / math.sqrt(2 * model.layers)
        for site, (weight, std) in enumerate(
            (
                (self.qkv_weight, STANDARD_DEVIATION),
                (self.out_weight, residual),
                (self.up_weight, STANDARD_DEVIATION),
                (self.down_weight, residual),
            )
        ):
            draw(weight, seed, number, site, std=std)
        constant(self)
        # Looking a parameter up on a module costs as much as a small kernel's launch.
        self._weights = tuple(self.parameters())
        self.compute: Callable[..., Tensor] = transform

    def forward(self, x: Tensor, step: int, index: int, mask: Tensor | None = None) -> Tensor:
        """(B, s, h) → (B, s, h). ``mask`` (B, 1, 1, s) is False where keys are padding."""
        kept, scale = None, 1.0
        if self.training and self.dropout.active:
            kept, scale = self.dropout.masks(2, x, step, index), self.dropout.scale
        return self.compute(x, self._weights, self.heads, self.causal, mask, kept, scale)


def transform(
    x: Tensor,
    weights: tuple[Tensor, ...],
    heads: int,
    causal: bool,
    mask: Tensor | None,
    kept: Tensor | None,
    scale: float,
) -> Tensor:
    """A layer without its state: tensors in, tensor out, so that ``torch.compile`` can take it.

    Args:
        kept: (2, B, s, h) bool, what dropout keeps after attention and after the MLP, or None.
        scale: of what is kept.
    """
    n1w, n1b, qkvw, qkvb, ow, ob, n2w, n2b, uw, ub, dw, db = weights
    batch, sequence, h = x.shape
    qkv = F.linear(F.layer_norm(x, (h,), n1w, n1b), qkvw, qkvb)
    q, k, v = qkv.view(batch, sequence, 3, heads, -1).transpose(1, 3).unbind(2)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    attended = F.linear(mixed.transpose(1, 2).reshape(batch, sequence, h), ow, ob)
    if kept is not None:
        first, second = kept.unbind(0)
        x = torch.addcmul(x, attended, first, value=scale)
        up = F.gelu(F.linear(F.layer_norm(x, (h,), n2w, n2b), uw, ub))
        return torch.addcmul(x, F.linear(up, dw, db), second, value=scale)
    x = x + attended
    up = F.gelu(F.linear(F.layer_norm(x, (h,), n2w, n2b), uw, ub))
    return x + F.linear(up, dw, db)


def constant(module: nn.Module) -> None:
    """Set a module's own norm weights to one and all its biases to zero."""
    with torch.no_grad():
        for name, weight in module.named_parameters(recurse=False):
            if name.endswith("_bias"):
                weight.zero_()
            elif "norm" in name:
                weight.fill_(1.0)
