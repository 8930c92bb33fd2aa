"""BERT and GPT in chunks: what one rank holds of the model, and how it computes it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitpipe.errors import InputError
from bitpipe.models.config import ModelConfig
from bitpipe.models.layer import Dropout, Layer, constant, draw, parameter
from bitpipe.models.micro_batch import IGNORE, MicroBatch

_EMBEDDING = 0  # layers count from 1
_HEAD = -1


class Embedding(nn.Module):
    """Token + learned position (+ BERT: sentence) embedding, then dropout."""

    def __init__(self, model: ModelConfig, *, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.token = parameter(model.vocabulary, model.hidden, dtype=dtype, device=device)
        self.position = parameter(model.sequence, model.hidden, dtype=dtype, device=device)
        draw(self.token, seed, _EMBEDDING, 0)
        draw(self.position, seed, _EMBEDDING, 1)
        self.sentence: nn.Parameter | None = None
        if model.family == "bert":
            self.sentence = parameter(2, model.hidden, dtype=dtype, device=device)
            draw(self.sentence, seed, _EMBEDDING, 2)
        self.dropout = Dropout(model.dropout, seed, _EMBEDDING)

    def forward(self, batch: MicroBatch) -> Tensor:
        """(B, s) tokens → (B, s, h)."""
        position = self.position[: batch.tokens.shape[1]]
        x = F.embedding(batch.tokens, self.token)
        if self.sentence is None:
            x = x + position
        elif batch.segments is None:
            x = x + (position + self.sentence[0])
        else:
            x = x + position + F.embedding(batch.segments, self.sentence)
        if self.training and self.dropout.active:
            mask = self.dropout.masks(1, x, batch.step, batch.index)[0]
            return x * mask * self.dropout.scale
        return x


class Head(nn.Module):
    """Final norm, BERT's masked-LM transform, decoder, and the loss.

    The decoder multiplies by the token embedding if they are tied: the first stage's parameter
    where that lies on the same device (``borrowed``, not registered here), else a copy that
    starts equal and that the runtime keeps equal (TIE).
    """

    def __init__(
        self,
        model: ModelConfig,
        *,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
        borrowed: nn.Parameter | None,
    ) -> None:
        super().__init__()
        h, v = model.hidden, model.vocabulary
        self.norm_weight = parameter(h, dtype=dtype, device=device)
        self.norm_bias = parameter(h, dtype=dtype, device=device)
        self.is_bert = model.family == "bert"
        if self.is_bert:
            self.transform_weight = parameter(h, h, dtype=dtype, device=device)
            self.transform_bias = parameter(h, dtype=dtype, device=device)
            self.transform_norm_weight = parameter(h, dtype=dtype, device=device)
            self.transform_norm_bias = parameter(h, dtype=dtype, device=device)
            self.decoder_bias = parameter(v, dtype=dtype, device=device)
            draw(self.transform_weight, seed, _HEAD, 1)
        self.next_sentence = model.next_sentence
        if model.next_sentence:
            self.pooler_weight = parameter(h, h, dtype=dtype, device=device)
            self.pooler_bias = parameter(h, dtype=dtype, device=device)
            self.follows_weight = parameter(2, h, dtype=dtype, device=device)
            self.follows_bias = parameter(2, dtype=dtype, device=device)
            draw(self.pooler_weight, seed, _HEAD, 2)
            draw(self.follows_weight, seed, _HEAD, 3)
        constant(self)
        if borrowed is not None:
            self._decoder: tuple[nn.Parameter, ...] = (borrowed,)  # a tuple, so not registered
        else:
            self.decoder_weight = parameter(v, h, dtype=dtype, device=device)
            draw(self.decoder_weight, seed, *((_EMBEDDING, 0) if model.tied_embeddings else (_HEAD, 0)))
            self._decoder = (self.decoder_weight,)

    @property
    def decoder(self) -> nn.Parameter:
        """(V, h), own or borrowed."""
        return self._decoder[0]

    def forward(self, x: Tensor, batch: MicroBatch) -> Tensor:
        """(B, s, h) → the micro-batch's share of the global mean loss, a scalar."""
        x = F.layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias)
        y = x
        if self.is_bert:
            y = F.gelu(F.linear(y, self.transform_weight, self.transform_bias))
            y = F.layer_norm(y, y.shape[-1:], self.transform_norm_weight, self.transform_norm_bias)
            logits = F.linear(y, self.decoder, self.decoder_bias)
        else:
            logits = F.linear(y, self.decoder)
        loss = _summed_loss(logits.flatten(0, 1), batch.labels.flatten()) / batch.normaliser
        if self.next_sentence:
            if batch.follows is None:
                raise InputError("model.next_sentence", True, "the data has no sentence pairs")
            pooled = torch.tanh(F.linear(x[:, 0], self.pooler_weight, self.pooler_bias))
            follows = F.linear(pooled, self.follows_weight, self.follows_bias)
            loss = loss + _summed_loss(follows, batch.follows) / batch.samples
        return loss


def _summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    if logits.dtype.itemsize < 4:
        logits = logits.float()
    return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORE)


class Chunk(nn.Module):
    """One stage of the model.

    Attributes:
        stage: from 0.
        is_first, is_last: whether it holds the embedding, the head (both if there is one stage).
        dtype: of parameters and boundary activations.
    """

    def __init__(
        self,
        model: ModelConfig,
        partition: Sequence[int],
        stage: int,
        *,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
        embedding: nn.Parameter | None,
    ) -> None:
        super().__init__()
        self.model = model
        self.stage = stage
        self.is_first = stage == 0
        self.is_last = stage == len(partition) - 1
        self.dtype = dtype
        first = sum(partition[:stage]) + 1
        self.embedding: Embedding | None = None
        self.head: Head | None = None
        if self.is_first:
            self.embedding = Embedding(model, seed=seed, dtype=dtype, device=device)
        self.layers = nn.ModuleList(
            Layer(model, first + i, seed=seed, dtype=dtype, device=device) for i in range(partition[stage])
        )
        if self.is_last:
            borrowed = embedding
            if model.tied_embeddings and self.embedding is not None:
                borrowed = self.embedding.token
            self.head = Head(model, seed=seed, dtype=dtype, device=device, borrowed=borrowed)

    def forward(self, x: Tensor | None, batch: MicroBatch) -> Tensor:
        """Boundary activation (B, s, h) → the next one; the last stage gives the scalar loss.

        ``x`` is None at stage 0. The loss is the micro-batch's summed token losses over
        ``batch.normaliser``, so losses and gradients of micro-batches add up.
        """
        if self.embedding is not None:
            x = self.embedding(batch)
        assert x is not None
        mask = None if batch.keep is None or self.model.family == "gpt" else batch.keep[:, None, None, :]
        for layer in self.layers:
            x = layer(x, batch.step, batch.index, mask)
        if self.head is not None:
            x = self.head(x, batch)
        assert x is not None
        return x

    @property
    def tied(self) -> nn.Parameter | None:
        """The token embedding as this chunk uses it: the first stage's own, the last stage's
        copy or the first stage's that it borrowed; None in between or if nothing is tied."""
        if not self.model.tied_embeddings:
            return None
        if self.embedding is not None:
            return self.embedding.token
        return None if self.head is None else self.head.decoder

    def boundary(self, micro_batch_size: int) -> tuple[int, int, int]:
        """Shape of the activation that enters and leaves an inner stage: (B, s, h)."""
        return micro_batch_size, self.model.sequence, self.model.hidden


def build_chunk(
    model: ModelConfig,
    partition: Sequence[int],
    stage: int,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    embedding: nn.Parameter | None = None,
) -> Chunk:
    """Build one stage with its initial weights.

    Args:
        model: the whole model.
        partition: layers per stage, as :func:`bitpipe.models.partition` gives them.
        stage: which one.
        seed: together with a layer's number it decides the layer's weights, so that every
            partition starts from the same model, bit by bit (per kind of device).
        dtype: of parameters and activations.
        device: ``meta`` allocates and computes nothing.
        embedding: the first stage's token embedding, if it lies on the same device and is to
            be shared with the last stage (tied embeddings only).

    Raises:
        InputError: the partition does not hold the model's layers, or there is no such stage.
    """
    if sum(partition) != model.layers:
        raise InputError("partition", tuple(partition), f"must add up to model.layers={model.layers}")
    if not 0 <= stage < len(partition):
        raise InputError("stage", stage, f"from 0 to {len(partition) - 1}")
    if embedding is not None and not model.tied_embeddings:
        raise InputError("embedding", "given", "only a model with tied_embeddings shares it")
    return Chunk(
        model,
        partition,
        stage,
        seed=seed,
        dtype=dtype,
        device=torch.device(device),
        embedding=embedding,
    )
