"""Chunks: the same model whatever the partition, the rank and the order of micro-batches."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from bitpipe.errors import InputError
from bitpipe.models import partition
from bitpipe.models.micro_batch import IGNORE, MicroBatch
from bitpipe.models.transformer import build_chunk
from tests.models.helpers import build, loss_of, random_batch, tiny


def weights_by_layer(chunks: list[nn.Module]) -> list[torch.Tensor]:
    return [weight for chunk in chunks for weight in chunk.parameters()]


@pytest.mark.parametrize("family", ["bert", "gpt"])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_every_partition_starts_from_the_same_weights(family: str, stages: int) -> None:
    model = tiny(family)
    whole, cut = build(model, 1), build(model, stages)
    pairs = list(zip(weights_by_layer(whole), weights_by_layer(cut), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_every_partition_has_the_same_loss_and_gradients_with_dropout_on(family: str) -> None:
    model = tiny(family, dropout=0.2)
    whole, cut = build(model, 1), build(model, 3)
    for index in (0, 1):
        loss_of(whole, random_batch(model, index=index)).backward()
    for index in (1, 0):  # another order of micro-batches
        loss_of(cut, random_batch(model, index=index)).backward()
    for a, b in zip(weights_by_layer(whole), weights_by_layer(cut), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert (a.grad - b.grad).abs().max() < 1e-14


def test_layers_differ_and_seeds_differ() -> None:
    model = tiny()
    (chunk,), (other,) = build(model, 1), build(model, 1, seed=4)
    matrices = [layer.qkv_weight for layer in chunk.layers] + [layer.qkv_weight for layer in other.layers]
    for i, a in enumerate(matrices):
        assert all(not torch.equal(a, b) for b in matrices[:i])


def test_dropout_depends_on_step_and_global_micro_batch_and_nothing_else() -> None:
    model = tiny(dropout=0.5)
    (chunk,) = build(model, 1)
    data = random_batch(model)

    def loss(step: int, index: int) -> float:
        batch = MicroBatch(tokens=data.tokens, labels=data.labels, step=step, index=index, normaliser=50)
        return chunk(None, batch).item()

    first = loss(0, 0)
    torch.rand(3)  # the global generator has no say
    assert loss(0, 0) == first
    assert len({first, loss(0, 1), loss(1, 0), loss(1, 1)}) == 4
    chunk.eval()
    assert loss(0, 0) == loss(1, 1)


def test_dropout_keeps_the_mean_and_the_stated_share() -> None:
    from bitpipe.models.layer import Dropout

    dropout = Dropout(0.1, seed=1, layer=2)
    masks = dropout.masks(2, torch.empty(64, 32, 64), step=5, index=9)
    assert masks.shape == (2, 64, 32, 64)
    assert abs(masks.double().mean().item() - 0.9) < 0.003
    assert abs(masks.double().mean().item() * dropout.scale - 1) < 0.003
    assert not torch.equal(masks[0], masks[1])


def test_losses_of_micro_batches_add_up_to_the_mean_over_all_masked_tokens() -> None:
    model = tiny(dropout=0.0)
    (chunk,) = build(model, 1)
    batches = [random_batch(model, index=index) for index in range(4)]
    counts = [int((batch.labels != IGNORE).sum()) for batch in batches]
    assert len(set(counts)) > 1
    parts = [
        MicroBatch(tokens=b.tokens, labels=b.labels, step=0, index=i, normaliser=sum(counts))
        for i, b in enumerate(batches)
    ]
    whole = MicroBatch(
        tokens=torch.cat([b.tokens for b in batches]),
        labels=torch.cat([b.labels for b in batches]),
        step=0,
        index=0,
        normaliser=sum(counts),
    )
    assert sum(chunk(None, part) for part in parts).item() == pytest.approx(
        chunk(None, whole).item(), abs=1e-12
    )


def test_bert_sees_both_sides_and_gpt_only_the_past() -> None:
    for family, sees in (("bert", True), ("gpt", False)):
        model = tiny(family, dropout=0.0)
        chunk = build_chunk(model, (3, 2), 0, seed=0, dtype=torch.float64)
        batch = random_batch(model, size=1)
        before = chunk(None, batch)
        batch.tokens[0, -1] = (batch.tokens[0, -1] + 1) % model.vocabulary
        changed = (chunk(None, batch) - before).abs().amax(-1)[0] > 0
        assert changed[-1]
        assert bool(changed[0]) is sees


def test_padding_is_not_attended_to() -> None:
    model = tiny(dropout=0.0)
    chunk = build_chunk(model, (5,), 0, seed=0, dtype=torch.float64)
    data = random_batch(model, size=2)
    data.labels[:, -3:] = IGNORE
    keep = torch.ones_like(data.tokens, dtype=torch.bool)
    keep[:, -3:] = False

    def loss(tokens: torch.Tensor) -> float:
        batch = MicroBatch(tokens=tokens, labels=data.labels, step=0, index=0, normaliser=9, keep=keep)
        return chunk(None, batch).item()

    other = data.tokens.clone()
    other[:, -3:] = (other[:, -3:] + 7) % model.vocabulary
    assert loss(other) == pytest.approx(loss(data.tokens), abs=1e-13)


def test_a_borrowed_embedding_is_one_parameter_with_both_gradients() -> None:
    model = tiny(dropout=0.0)
    shared = build(model, 2)
    assert shared[1].tied is shared[0].tied
    own = [build_chunk(model, (3, 2), stage, seed=3, dtype=torch.float64) for stage in (0, 1)]
    assert torch.equal(own[0].tied, own[1].tied)
    assert own[0].tied is not own[1].tied
    names = [name for name, _ in shared[1].named_parameters()]
    assert "head.decoder_weight" not in names
    for chunks in (shared, own):
        loss_of(chunks, random_batch(model)).backward()
    assert torch.allclose(shared[0].tied.grad, own[0].tied.grad + own[1].tied.grad, atol=1e-15)


def test_untied_models_have_a_decoder_of_their_own() -> None:
    model = tiny(tied_embeddings=False)
    (chunk,) = build(model, 1)
    assert chunk.tied is None
    assert not torch.equal(chunk.head.decoder, chunk.embedding.token)


def test_next_sentence_adds_a_loss_per_sample() -> None:
    model = tiny(next_sentence=True, dropout=0.0)
    (chunk,) = build(model, 1)
    data = random_batch(model)
    segments = torch.zeros_like(data.tokens)
    segments[:, 4:] = 1
    with pytest.raises(InputError, match="sentence pairs"):
        chunk(None, data)

    def loss(follows: list[int]) -> float:
        return chunk(
            None,
            MicroBatch(
                tokens=data.tokens,
                labels=data.labels,
                step=0,
                index=0,
                normaliser=50,
                segments=segments,
                follows=torch.tensor(follows),
                samples=12,
            ),
        ).item()

    assert loss([0, 0, 0]) != loss([1, 0, 0])
    assert abs(loss([0, 0, 0]) - loss([1, 1, 1])) < 3 / 12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_types_keep_to_the_boundary_and_the_loss_is_wide(dtype: torch.dtype) -> None:
    model = tiny("gpt")
    chunks = build(model, 2, dtype=dtype)
    batch = random_batch(model)
    x = chunks[0](None, batch)
    assert x.dtype is dtype
    assert tuple(x.shape) == chunks[0].boundary(3)
    loss = chunks[1](x, batch)
    assert loss.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    loss.backward()
    assert all(torch.isfinite(weight.grad).all() for chunk in chunks for weight in chunk.parameters())


def test_the_model_learns() -> None:
    model = tiny("gpt", dropout=0.0)
    (chunk,) = build(model, 1)
    batch = random_batch(model)
    batch = MicroBatch(tokens=batch.tokens, labels=batch.tokens.roll(-1, 1), step=0, index=0, normaliser=24)
    losses = []
    for _ in range(100):
        loss = chunk(None, batch)
        weights = list(chunk.parameters())
        with torch.no_grad():
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight -= 0.5 * gradient
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_chunks_can_be_copied_and_sent_to_another_process() -> None:
    model = tiny()
    (chunk,) = build(model, 1)
    batch = random_batch(model)
    loss = chunk(None, batch).item()
    for twin in (copy.deepcopy(chunk), pickle.loads(pickle.dumps(chunk))):
        assert twin(None, batch).item() == loss
        with torch.no_grad():
            twin.layers[0].up_weight.zero_()
        assert twin(None, batch).item() != loss
    assert chunk(None, batch).item() == loss


def test_meta_chunks_allocate_nothing() -> None:
    model = tiny(hidden=4096, heads=32, layers=64, vocabulary=50_000)
    chunk = build_chunk(model, partition(64, 4), 3, seed=0, device="meta")
    assert all(weight.is_meta for weight in chunk.parameters())


def test_what_cannot_be_built_is_refused() -> None:
    model = tiny()
    with pytest.raises(InputError, match=r"add up to model\.layers=5"):
        build_chunk(model, (2, 2), 0, seed=0)
    with pytest.raises(InputError, match="from 0 to 1"):
        build_chunk(model, (3, 2), 2, seed=0)
    with pytest.raises(InputError, match="tied_embeddings"):
        build_chunk(
            tiny(tied_embeddings=False), (3, 2), 1, seed=0, embedding=nn.Parameter(torch.empty(40, 16))
        )
