"""Megatron-format data: what megatron-core writes we read, what we write it reads, equal samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bitpipe.data.megatron import open_megatron
from bitpipe.errors import InputError
from bitpipe.models.micro_batch import IGNORE
from tests.data.conftest import small

pytestmark = pytest.mark.needs("megatron")

SAMPLES = 24


class Tokenizer:
    """The least that megatron-core asks for."""

    def __init__(self, folder: Path) -> None:
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        self.unique_identifiers = {"class": "test"}
        self.inv_vocab = {number: text for text, number in vocabulary.items()}
        self.vocab_size = len(vocabulary)
        self.eod = vocabulary.get("<|endoftext|>", -1)
        self.cls, self.sep, self.mask, self.pad = (
            vocabulary.get(f"[{name}]", -1) for name in ("CLS", "SEP", "MASK", "PAD")
        )


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """megatron-core's BERT data set asks for a process group, be it of one."""
    place = (tmp_path_factory.mktemp("group") / "meeting").as_uri()
    torch.distributed.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def megatron_dataset(family: str, prefix: Path, cache: Path, *, pairs: bool = False) -> Any:
    """What Megatron-LM's pretraining scripts build, written here a second time."""
    from megatron.core.datasets import bert_dataset, gpt_dataset
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder

    common: dict[str, Any] = {
        "random_seed": 1234,
        "sequence_length": 32,
        "blend": ([str(prefix)], None),
        "split": "100,0,0",
        "path_to_cache": str(cache),
        "tokenizer": Tokenizer(prefix.parent),
    }
    if family == "gpt":
        kind: Any = gpt_dataset.GPTDataset
        flags = dict.fromkeys(("reset_position_ids", "reset_attention_mask", "eod_mask_loss"), False)
        config: Any = gpt_dataset.GPTDatasetConfig(**common, **flags)
    else:
        kind = bert_dataset.BERTMaskedWordPieceDataset
        names = ("full_word", "permutation")
        config = bert_dataset.BERTMaskedWordPieceDatasetConfig(
            **common,
            **{f"masking_do_{name}": name == "full_word" for name in names},
            masking_probability=0.15,
            short_sequence_probability=0.1,
            masking_max_ngram=3,
            masking_use_longer_ngrams=False,
            masking_use_geometric_distribution=False,
            classification_head=pairs,
        )
    return BlendedMegatronDatasetBuilder(kind, [SAMPLES, 0, 0], lambda: True, config).build()[0]


def test_megatron_reads_what_we_prepare(corpora: dict[str, Path]) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    from bitpipe.data.corpus import Corpus
    from bitpipe.data.indexed import read_index

    for folder in corpora.values():
        theirs = IndexedDataset(str(folder / "tokens"))
        ours, index = Corpus.open(folder), read_index(folder / "tokens")
        assert np.array_equal(np.concatenate([theirs[i] for i in range(len(theirs))]), ours.tokens)
        assert np.array_equal(theirs.sequence_lengths, index.lengths)
        assert np.array_equal(theirs.document_indices, index.documents)


def test_we_read_what_megatron_writes(tmp_path: Path) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    from bitpipe.data.indexed import Index, read_index, read_tokens, write_index

    for dtype in (np.uint16, np.int32):
        prefix = tmp_path / dtype.__name__
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        builder.add_document(torch.arange(9), [4, 5])
        builder.add_document(torch.arange(3), [3])
        builder.finalize(f"{prefix}.idx")
        index = read_index(prefix)
        assert read_tokens(prefix, index).tolist() == [*range(9), 0, 1, 2]
        assert index.lengths.tolist() == [4, 5, 3]
        assert index.documents.tolist() == [0, 2, 3]
        again = Index(dtype=index.dtype, lengths=index.lengths, documents=index.documents)
        write_index(tmp_path / "again.idx", again)
        assert (tmp_path / "again.idx").read_bytes() == Path(f"{prefix}.idx").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("group")
def test_gpt_samples_are_megatrons(corpora: dict[str, Path], tmp_path: Path) -> None:
    prefix = corpora["gpt"] / "tokens"
    theirs = megatron_dataset("gpt", prefix, tmp_path / "theirs")
    source = open_megatron(prefix, small("gpt"), tmp_path, samples=SAMPLES).source(
        small("gpt"), micro_batch_size=2, micro_batches=3, seed=0
    )
    for step in range(4):
        for index in range(3):
            batch = source.micro_batch(step, index)
            assert batch.normaliser == 6 * 32
            for row in range(2):
                sample = theirs[step * 6 + index * 2 + row]
                assert torch.equal(batch.tokens[row], sample["tokens"])
                assert torch.equal(batch.labels[row], sample["labels"])


@pytest.mark.usefixtures("group")
def test_bert_samples_with_pairs_are_megatrons(corpora: dict[str, Path], tmp_path: Path) -> None:
    prefix = corpora["bert"] / "tokens"
    theirs = megatron_dataset("bert", prefix, tmp_path / "theirs", pairs=True)
    model = small("bert", next_sentence=True)
    dataset = open_megatron(prefix, model, tmp_path, samples=SAMPLES)
    source = dataset.source(model, micro_batch_size=2, micro_batches=3, seed=0)
    for step in range(4):
        counted = 0
        for index in range(3):
            batch = source.micro_batch(step, index)
            assert batch.segments is not None
            assert batch.keep is not None
            assert batch.follows is not None
            counted += int((batch.labels != IGNORE).sum())
            for row in range(2):
                sample = theirs[step * 6 + index * 2 + row]
                assert np.array_equal(batch.tokens[row], sample["text"])
                assert np.array_equal(batch.segments[row], sample["types"])
                assert np.array_equal(batch.keep[row], sample["padding_mask"])
                assert batch.follows[row] == sample["is_random"]
                asked = sample["loss_mask"] == 1
                assert np.array_equal((batch.labels[row] != IGNORE).numpy(), asked)
                assert np.array_equal(batch.labels[row].numpy()[asked], sample["labels"][asked])
        assert counted == batch.normaliser
    assert open_megatron(prefix, model, tmp_path, samples=SAMPLES).fingerprint == dataset.fingerprint
    with pytest.raises(InputError, match=r"where .* are asked for"):
        dataset.source(small("bert"), micro_batch_size=1, micro_batches=1, seed=0)
