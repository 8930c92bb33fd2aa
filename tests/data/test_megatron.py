"""Megatron-format data: what megatron-core writes we read, what we write it reads, equal samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bitpipe.data import open_dataset
from bitpipe.data.documents import FileDocuments
from bitpipe.data.megatron import open_megatron
from bitpipe.data.prepare import prepare
from bitpipe.errors import InputError
from bitpipe.models.micro_batch import IGNORE
from tests.data.conftest import small

pytest.importorskip("megatron.core.datasets", reason="needs megatron-core (the extra 'megatron')")

SAMPLES = 24
WORDS = ["the", "a", "layer", "rank", "stage", "moves", "waits", "sends", "reads", "writes", "and", "two"]


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
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small corpus of made-up sentences, prepared by us for each family."""
    folder = tmp_path_factory.mktemp("megatron")
    choice = np.random.default_rng(0).choice
    with (folder / "text.jsonl").open("w") as stream:
        for _ in range(60):
            sentences = [" ".join(choice(WORDS, 8)) + "." for _ in range(7)]
            stream.write(json.dumps({"text": " ".join(sentences)}) + "\n")
    documents = FileDocuments(folder / "text.jsonl")
    prepare(documents, folder / "gpt", kind="bpe", vocabulary=300)
    prepare(documents, folder / "bert", kind="wordpiece", vocabulary=256)
    return {"gpt": folder / "gpt", "bert": folder / "bert"}


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


def damaged(folder: Path, corpora: dict[str, Path], kind: str) -> Path:
    """A copy of the GPT corpus with one thing wrong."""
    idx = bytearray((corpora["gpt"] / "tokens.idx").read_bytes())
    data = (corpora["gpt"] / "tokens.bin").read_bytes()
    if kind == "short .bin":
        data = data[: len(data) // 2]
    elif kind == "empty .idx":
        idx = bytearray()
    elif kind == "cut .idx":
        idx = idx[: len(idx) // 2]
    elif kind == "magic":
        idx[:4] = b"JUNK"
    elif kind == "version":
        idx[9] = 7
    elif kind == "lengths":
        idx[34:38] = (123456789).to_bytes(4, "little")
    elif kind == "bounds":
        idx[-8:] = (5).to_bytes(8, "little")
    elif kind == "tokens":
        data = b"\xff" * len(data)
    folder.mkdir()
    (folder / "x.idx").write_bytes(idx)
    if kind != "no .bin":
        (folder / "x.bin").write_bytes(data)
    return folder / "x"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("short .bin", r"x\.bin: has \d+ bytes where the index says \d+: truncated"),
        ("empty .idx", r"x\.idx: corrupt: 0 bytes are less than a header"),
        ("cut .idx", r"x\.idx: corrupt: \d+ bytes where 60 sequences need \d+"),
        ("magic", r"x\.idx: corrupt: does not start as a Megatron index"),
        ("version", r"x\.idx: corrupt: version 7"),
        ("lengths", r"x\.idx: corrupt: the sequences do not follow"),
        ("bounds", r"x\.idx: corrupt: the document bounds"),
        ("no .bin", r"x\.bin: no such file; the data set needs both"),
        ("tokens", r"model\.vocabulary=512: the data at .* need 65536"),
    ],
)
def test_damage_gives_one_line(kind: str, message: str, corpora: dict[str, Path], tmp_path: Path) -> None:
    prefix = damaged(tmp_path / "broken", corpora, kind)
    with pytest.raises(InputError, match=message) as error:
        open_dataset(prefix, small("gpt"), cache=tmp_path)
    assert "\n" not in str(error.value)


def test_a_wrong_vocabulary_or_tokenizer_gives_one_line(corpora: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.vocabulary=200: .*at least model\.vocabulary=300"):
        open_dataset(corpora["gpt"] / "tokens.bin", small("gpt", vocabulary=200), cache=tmp_path)
    prefix = damaged(tmp_path / "alone", corpora, "nothing")
    with pytest.raises(InputError, match=r"BERT needs the data's tokenizer\.json or vocab\.txt"):
        open_dataset(prefix, small("bert"), cache=tmp_path)
    (tmp_path / "alone" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    with pytest.raises(InputError, match=r"holds token .*vocab\.txt has 2"):
        open_dataset(prefix, small("bert"), cache=tmp_path)
    (tmp_path / "alone" / "vocab.txt").write_text("\n".join(f"w{i}" for i in range(400)))
    with pytest.raises(InputError, match=r"lacks the special token \[PAD\]"):
        open_dataset(prefix, small("bert"), cache=tmp_path)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(400))]
    (tmp_path / "alone" / "vocab.txt").write_text("\n".join(names))
    with pytest.raises(InputError, match="no document of at least 2 sentences"):
        open_dataset(prefix, small("bert", next_sentence=True), cache=tmp_path)
    with pytest.raises(InputError, match="one sample needs 100001"):
        open_dataset(prefix, small("gpt", sequence=100_000), cache=tmp_path)
