"""Text samples: the same for every method, rank and partition, and masked as BERT masks."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from bitpipe.data import open_dataset
from bitpipe.data.corpus import Corpus
from bitpipe.errors import InputError
from bitpipe.models.micro_batch import IGNORE
from tests.data.conftest import small


def test_every_rank_gets_the_same_micro_batch_in_any_order(cache: Path) -> None:
    dataset = open_dataset(None, small("bert"), cache=cache)
    ranks = [
        pickle.loads(pickle.dumps(dataset)).source(small("bert"), micro_batch_size=2, micro_batches=4, seed=7)
        for _ in range(2)
    ]
    asked = [(step, index) for step in range(3) for index in range(4)]
    first = {key: ranks[0].micro_batch(*key) for key in asked}
    for key in reversed(asked):
        again = ranks[1].micro_batch(*key)
        assert torch.equal(again.tokens, first[key].tokens)
        assert torch.equal(again.labels, first[key].labels)
        assert again.normaliser == first[key].normaliser


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_step_has_the_same_samples_and_masks_however_it_is_cut(family: str, cache: Path) -> None:
    model = small(family)
    dataset = open_dataset(None, model, cache=cache)
    steps = []
    for size, count in ((1, 12), (2, 6), (4, 3)):
        source = dataset.source(model, micro_batch_size=size, micro_batches=count, seed=1)
        parts = [source.micro_batch(5, index) for index in range(count)]
        assert len({part.normaliser for part in parts}) == 1
        tokens, labels = torch.cat([p.tokens for p in parts]), torch.cat([p.labels for p in parts])
        steps.append((tokens, labels, parts[0].normaliser))
    for tokens, labels, normaliser in steps:
        assert torch.equal(tokens, steps[0][0])
        assert torch.equal(labels, steps[0][1])
        assert normaliser == steps[0][2] == int((labels != IGNORE).sum())


def test_masked_tokens_differ_in_number_between_micro_batches(cache: Path) -> None:
    source = open_dataset(None, small("bert"), cache=cache).source(
        small("bert"), micro_batch_size=2, micro_batches=8, seed=0
    )
    counts = {int((source.micro_batch(0, i).labels != IGNORE).sum()) for i in range(8)}
    assert len(counts) > 1


def test_masking_is_15_percent_of_which_80_10_10(cache: Path) -> None:
    model = small("bert", sequence=128)
    dataset = open_dataset(None, model, cache=cache)
    source = dataset.source(model, micro_batch_size=64, micro_batches=8, seed=0)
    special = Corpus.open(dataset.folder).manifest.special  # type: ignore[attr-defined]
    batches = [source.micro_batch(0, i) for i in range(8)]
    tokens, labels = torch.cat([b.tokens for b in batches]), torch.cat([b.labels for b in batches])
    asked = labels != IGNORE
    assert not asked[:, 0].any()
    assert not asked[:, -1].any()
    assert (tokens[:, 0] == special["[CLS]"]).all()
    assert (tokens[:, -1] == special["[SEP]"]).all()
    assert asked[:, 1:-1].float().mean().item() == pytest.approx(0.15, abs=0.01)
    masked = (tokens == special["[MASK]"]) & asked
    stayed = (tokens == labels) & asked
    swapped = asked & ~masked & ~stayed
    share = [x.sum().item() / asked.sum().item() for x in (masked, swapped, stayed)]
    assert share == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    assert (tokens[swapped] >= len(special)).all()


def test_causal_labels_are_the_next_tokens_of_the_text(cache: Path) -> None:
    model = small("gpt")
    dataset = open_dataset(None, model, cache=cache)
    source = dataset.source(model, micro_batch_size=2, micro_batches=2, seed=0)
    batch = source.micro_batch(0, 0)
    assert torch.equal(batch.tokens[:, 1:], batch.labels[:, :-1])
    assert batch.normaliser == 2 * 2 * 32
    text = Corpus.open(dataset.folder).tokens.astype(np.int64)  # type: ignore[attr-defined]
    row = np.append(batch.tokens[0].numpy(), batch.labels[0, -1].item())
    windows = np.lib.stride_tricks.sliding_window_view(text, 33)[::32]
    assert (windows == row).all(axis=1).any()


def test_a_pass_visits_every_sample_once_and_the_next_one_in_another_order(cache: Path) -> None:
    model = small("gpt")
    source = open_dataset(None, model, cache=cache).source(model, micro_batch_size=1, micro_batches=1, seed=0)
    count = source.passes.samples  # type: ignore[attr-defined]
    rows = [tuple(source.micro_batch(step, 0).tokens[0].tolist()) for step in range(2 * count)]
    first, second = rows[:count], rows[count:]
    assert sorted(first) == sorted(second)
    assert first != second


def test_the_seed_decides(cache: Path) -> None:
    model = small("bert")
    dataset = open_dataset(None, model, cache=cache)
    a, b = (dataset.source(model, micro_batch_size=2, micro_batches=2, seed=s) for s in (0, 1))
    assert not torch.equal(a.micro_batch(0, 0).tokens, b.micro_batch(0, 0).tokens)


def test_data_that_do_not_fit_the_model_are_refused_in_one_line(cache: Path) -> None:
    dataset = open_dataset(None, small("bert"), cache=cache)

    def use(**changes: int | str) -> str:
        model = small(**{"family": "bert", **changes})  # type: ignore[arg-type]
        with pytest.raises(InputError) as error:
            dataset.source(model, micro_batch_size=1, micro_batches=1, seed=0)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "gpt needs bpe" in use(family="gpt")
    assert "at least model.vocabulary=512" in use(vocabulary=300)
    assert "one sample needs 9999998" in use(sequence=10_000_000)


def test_half_of_the_second_sentences_are_from_elsewhere(cache: Path) -> None:
    model = small("bert", sequence=64, next_sentence=True)
    dataset = open_dataset(None, model, cache=cache)
    source = dataset.source(model, micro_batch_size=8, micro_batches=16, seed=0)
    corpus = Corpus.open(dataset.folder)  # type: ignore[attr-defined]
    special, text = corpus.manifest.special, corpus.tokens.astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(text, 61)[::61]
    follows = []
    for index in range(16):
        batch = source.micro_batch(2, index)
        assert batch.segments is not None
        assert batch.follows is not None
        assert batch.samples == 128
        original = torch.where(batch.labels == IGNORE, batch.tokens, batch.labels)
        for row, label, segment, other in zip(
            original, batch.labels, batch.segments, batch.follows, strict=True
        ):
            middle = int((segment == 0).sum()) - 1
            for column in (0, middle, -1):
                assert label[column] == IGNORE
            assert row[0] == special["[CLS]"]
            assert row[middle] == row[-1] == special["[SEP]"]
            joined = torch.cat([row[1:middle], row[middle + 1 : -1]]).numpy()
            follows.append(int(other))
            if not other:
                assert (windows == joined).all(axis=1).any()
    assert 40 < sum(follows) < 88


def test_pairs_do_not_depend_on_how_a_step_is_cut(cache: Path) -> None:
    model = small("bert", next_sentence=True)
    dataset = open_dataset(None, model, cache=cache)
    steps = []
    for size, count in ((1, 6), (3, 2)):
        source = dataset.source(model, micro_batch_size=size, micro_batches=count, seed=1)
        parts = [source.micro_batch(1, index) for index in range(count)]
        steps.append([torch.cat([getattr(p, key) for p in parts]) for key in ("tokens", "labels", "follows")])
        assert parts[0].normaliser == int((steps[-1][1] != IGNORE).sum())
    assert all(torch.equal(a, b) for a, b in zip(*steps, strict=True))
