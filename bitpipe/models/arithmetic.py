"""Parameters, FLOPs and bytes of a model and its stages, by formula and without torch.

h hidden size, s sequence, a heads, V vocabulary, B micro-batch size, e bytes of an element.
The tests hold every formula to the modules of :mod:`bitpipe.models.transformer`: parameters
exactly, FLOPs to the operator counts of torch, bytes to what autograd really keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitpipe.models.config import ModelConfig, partition

if TYPE_CHECKING:
    from bitpipe.schedule.placement import Placement

HALF = 2
"""Bytes of an fp16 or bf16 element."""


def layer_parameters(model: ModelConfig) -> int:
    """12h² + 13h: attention 4h² + 4h, MLP 8h² + 5h, two norms 4h."""
    h = model.hidden
    return 12 * h * h + 13 * h


def embedding_parameters(model: ModelConfig) -> int:
    """(V + s)·h, and 2h for BERT's two sentences."""
    sentences = 2 if model.family == "bert" else 0
    return (model.vocabulary + model.sequence + sentences) * model.hidden


def head_parameters(model: ModelConfig, *, shared: bool) -> int:
    """Final norm 2h, decoder V·h unless ``shared`` with the embedding on the same device; for
    BERT the transform h² + h with its norm 2h and the decoder's bias V; for the next-sentence
    head the pooler h² + h and 2h + 2."""
    h, v = model.hidden, model.vocabulary
    total = 2 * h + (0 if shared else v * h)
    if model.family == "bert":
        total += h * h + 3 * h + v
    if model.next_sentence:
        total += h * h + 3 * h + 2
    return total


def parameters(model: ModelConfig) -> int:
    """Parameters of the whole model, a tied embedding counted once (Table 4)."""
    head = head_parameters(model, shared=model.tied_embeddings)
    return model.layers * layer_parameters(model) + embedding_parameters(model) + head


def stage_parameters(model: ModelConfig, stages: int, stage: int, *, shared: bool = False) -> int:
    """Parameters that one copy of a stage holds.

    Args:
        model: the whole model.
        stages: D·v.
        stage: from 0.
        shared: a first stage lies on the same device and lends the last one its embedding.

    Raises:
        InputError: more stages than layers.
    """
    total = partition(model.layers, stages)[stage] * layer_parameters(model)
    if stage == 0:
        total += embedding_parameters(model)
    if stage == stages - 1:
        total += head_parameters(model, shared=model.tied_embeddings and (shared or stages == 1))
    return total


def resident_parameters(model: ModelConfig, placement: Placement, device: int) -> int:
    """Parameters of all the chunks that a device holds, replicas of both directions included.

    What pipes share where they meet on a device is there once: the module of a stage that they both
    have there, and the embedding of a first and a last stage, whichever pipes these belong to.
    """
    held = {stage for _, stage in placement.held[device]}
    return sum(stage_parameters(model, placement.stages, stage, shared=0 in held) for stage in held)


def layer_forward_flops(model: ModelConfig, micro_batch_size: int) -> int:
    """24·B·s·h²·(1 + s/(6h)): matrix products, attention scores counted in full.

    Narayanan et al. 2021, equation 3's terms. A causal kernel may skip half of the scores;
    the count does not, as is custom.
    """
    h, s = model.hidden, model.sequence
    return 24 * micro_batch_size * s * h * h + 4 * micro_batch_size * s * s * h


def layer_weight_grad_flops(model: ModelConfig, micro_batch_size: int) -> int:
    """24·B·s·h²: every product with a weight once more; attention scores have none.

    Qi et al. 2023, Table 1. The rest of the backward's 2·(24·B·s·h² + 4·B·s²·h) is its input gradient.
    """
    return 24 * micro_batch_size * model.sequence * model.hidden**2


def head_forward_flops(model: ModelConfig, micro_batch_size: int) -> int:
    """Decoder 2·B·s·h·V, BERT's transform 2·B·s·h², next-sentence head 2·B·h·(h + 2)."""
    h, s, b = model.hidden, model.sequence, micro_batch_size
    total = 2 * b * s * h * model.vocabulary
    if model.family == "bert":
        total += 2 * b * s * h * h
    if model.next_sentence:
        total += 2 * b * h * (h + 2)
    return total


def stage_forward_flops(model: ModelConfig, stages: int, stage: int, micro_batch_size: int) -> int:
    """FLOPs of one forward of a stage; a backward takes twice that. Embedding look-ups are free.

    Raises:
        InputError: more stages than layers.
    """
    total = partition(model.layers, stages)[stage] * layer_forward_flops(model, micro_batch_size)
    if stage == stages - 1:
        total += head_forward_flops(model, micro_batch_size)
    return total


def stage_weight_grad_flops(model: ModelConfig, stages: int, stage: int, micro_batch_size: int) -> int:
    """FLOPs of one weight gradient of a stage; its input gradient takes the rest of the backward's.

    The head consists of products with weights alone, so that halves its backward.

    Raises:
        InputError: more stages than layers.
    """
    total = partition(model.layers, stages)[stage] * layer_weight_grad_flops(model, micro_batch_size)
    if stage == stages - 1:
        total += head_forward_flops(model, micro_batch_size)
    return total


def training_flops(model: ModelConfig, samples: int) -> int:
    """FLOPs of forward and backward (three forwards' worth) of ``samples`` sequences."""
    return 3 * stage_forward_flops(model, 1, 0, samples)


def boundary_bytes(model: ModelConfig, micro_batch_size: int, element: int = HALF) -> int:
    """e·B·s·h: one activation (or its gradient) between two stages."""
    return element * micro_batch_size * model.sequence * model.hidden


def layer_activation_bytes(
    model: ModelConfig, micro_batch_size: int, *, fused: bool, element: int = HALF
) -> int:
    """Bytes that a layer keeps from forward to backward, nothing recomputed.

    Unfused attention, Korthikanti et al. 2022, equation 2: s·B·h·(34 + 5·a·s/h) at e = 2,
    that is 16e + 2 per position and channel (two dropout masks of one byte) and 2e + 1 per
    attention score. Fused attention keeps no scores but one fp32 log-sum per query and head
    instead: s·B·h·(16e + 2) + 4·a·s·B. The two norms' means and deviations come to 16·s·B.
    """
    s, b = model.sequence, micro_batch_size
    masks = 2 if model.dropout else 0
    linear = s * b * model.hidden * (16 * element + masks)
    if not fused:
        return linear + model.heads * s * s * b * (2 * element + 1)
    return linear + 4 * model.heads * s * b + 16 * s * b


def logits_bytes(model: ModelConfig, micro_batch_size: int) -> int:
    """4·B·s·V: the log-probabilities that the loss keeps, in fp32 whatever the logits are."""
    return 4 * micro_batch_size * model.sequence * model.vocabulary


def stage_activation_bytes(
    model: ModelConfig,
    stages: int,
    stage: int,
    micro_batch_size: int,
    *,
    fused: bool,
    element: int = HALF,
) -> int:
    """Bytes that one micro-batch keeps on a stage: Ma of that stage, logits left out.

    The first stage adds its dropout mask, the last one the inputs of its norms and products:
    2e per position and channel for GPT, 5e for BERT.

    Raises:
        InputError: more stages than layers.
    """
    layers = partition(model.layers, stages)[stage]
    total = layers * layer_activation_bytes(model, micro_batch_size, fused=fused, element=element)
    channels = micro_batch_size * model.sequence * model.hidden
    if stage == 0 and model.dropout:
        total += channels
    if stage == stages - 1:
        total += channels * element * (5 if model.family == "bert" else 2)
    return total
