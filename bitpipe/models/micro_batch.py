"""One micro-batch: what a token source hands to the chunks of a model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

IGNORE = -100
"""Label of a position that has no loss (what ``cross_entropy`` ignores)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """B samples of s tokens, with all that makes their loss and dropout reproducible.

    Attributes:
        tokens: (B, s) int64, what the model reads (masked for masked LM).
        labels: (B, s) int64, the token to predict at each position, or :data:`IGNORE`.
        step: training step, from 0.
        index: global micro-batch w·N + j of the step.
        normaliser: loss tokens of the whole global mini-batch, over all micro-batches and
            replicas. Dividing by it makes gradients a plain sum over micro-batches.
        segments: (B, s) int64 sentence of each token (0 or 1), or None for all 0.
        keep: (B, s) bool, False for padding, or None where nothing is padded. Only BERT reads
            it: behind a causal mask, padding at the end has no influence.
        follows: (B,) int64, 1 where the second sentence is not the next one, or None.
        samples: samples of the whole global mini-batch; normalises the next-sentence loss.
    """

    tokens: Tensor
    labels: Tensor
    step: int
    index: int
    normaliser: int
    segments: Tensor | None = None
    keep: Tensor | None = None
    follows: Tensor | None = None
    samples: int = 0

    def to(self, device: torch.device) -> MicroBatch:
        """The same micro-batch with its tensors on ``device``."""
        if self.tokens.device == device:
            return self
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {n: v.to(device) for n, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **moved)
