"""Preparation: once, resumable, atomic, safe among processes, and clear about bad input."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bitpipe.data import open_dataset
from bitpipe.data.corpus import INDEX, MANIFEST, TOKENIZER, TOKENS, Corpus, verify
from bitpipe.data.documents import BuiltinDocuments, FileDocuments
from bitpipe.data.prepare import prepare
from bitpipe.data.tokenizer import load
from bitpipe.errors import InputError
from tests.data.conftest import small


class Counted:
    """Many short documents; raises after ``until``, as a killed process would stop."""

    name = "counted"

    def __init__(self, until: int | None = None) -> None:
        self.until = until
        self.armed = False

    def fingerprint(self) -> str:
        return "counted"

    def __iter__(self) -> Iterator[str]:
        for number in range(1000):
            if self.armed and number == self.until:
                raise KeyboardInterrupt
            yield f"Document number {number} speaks of {number * 7} things."


def test_text_comes_back_from_the_tokens(cache: Path) -> None:
    folder = open_dataset(None, small("gpt"), cache=cache).folder  # type: ignore[attr-defined]
    corpus, tokenizer = Corpus.open(folder), load(folder / TOKENIZER)
    documents = list(BuiltinDocuments())
    assert len(corpus.ends) == len(documents) == corpus.manifest.documents
    start, end = corpus.ends[3], corpus.ends[4]
    assert tokenizer.decode(corpus.tokens[start:end].tolist()) == documents[4]


def test_a_second_preparation_finds_the_first(cache: Path) -> None:
    first = open_dataset(None, small("bert"), cache=cache)
    written = (first.folder / TOKENS).stat().st_mtime_ns  # type: ignore[attr-defined]
    assert open_dataset("builtin", small("bert"), cache=cache) == first
    assert (first.folder / TOKENS).stat().st_mtime_ns == written  # type: ignore[attr-defined]


def _prepare(folder: Path, queue: multiprocessing.Queue[str]) -> None:
    queue.put(prepare(Counted(), folder, kind="wordpiece", vocabulary=300).checksums[TOKENS])


def test_several_processes_may_ask_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[str] = context.Queue()
    workers = [context.Process(target=_prepare, args=(tmp_path / "c", queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    sums = {queue.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len(sums) == 1
    verify(tmp_path / "c", deep=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "c.lock"]


def test_an_interrupted_preparation_goes_on_and_ends_equal(tmp_path: Path) -> None:
    whole = prepare(Counted(), tmp_path / "whole", kind="bpe", vocabulary=300)
    documents = Counted(until=700)
    with pytest.raises(KeyboardInterrupt):
        prepare(documents, tmp_path / "cut", kind="bpe", vocabulary=300, progress=lambda *_: arm(documents))
    assert not (tmp_path / "cut").exists()
    partial = tmp_path / "cut.partial"
    assert json.loads((partial / "state.json").read_text())["read"] == 512
    with (partial / TOKENS).open("ab") as stream:  # written after the last check-point
        stream.write(b"half a bat")
    seen: list[int] = []
    again = prepare(
        Counted(), tmp_path / "cut", kind="bpe", vocabulary=300, progress=lambda n, _: seen.append(n)
    )
    assert seen[0] == 768
    assert again.checksums == whole.checksums
    assert not partial.exists()


def arm(documents: Counted) -> None:
    documents.armed = True


def test_max_tokens_ends_with_a_whole_document(tmp_path: Path) -> None:
    manifest = prepare(Counted(), tmp_path / "c", kind="bpe", vocabulary=300, max_tokens=500)
    corpus = Corpus.open(tmp_path / "c")
    assert corpus.ends[-2] < 500 <= manifest.tokens == corpus.ends[-1] < 600


def test_a_given_tokenizer_is_used(tmp_path: Path) -> None:
    prepare(Counted(), tmp_path / "a", kind="bpe", vocabulary=300)
    given = tmp_path / "a" / TOKENIZER
    manifest = prepare(BuiltinDocuments(), tmp_path / "b", kind="bpe", vocabulary=300, tokenizer=given)
    assert (tmp_path / "b" / TOKENIZER).read_bytes() == given.read_bytes()
    assert manifest.vocabulary <= 300
    with pytest.raises(InputError, match=r"model\.vocabulary=260: the given tokenizer has 300"):
        prepare(Counted(), tmp_path / "c", kind="bpe", vocabulary=260, tokenizer=given)
    with pytest.raises(InputError, match=r"lacks the special token \[PAD\]"):
        prepare(Counted(), tmp_path / "d", kind="wordpiece", vocabulary=300, tokenizer=given)


def test_a_large_vocabulary_takes_four_bytes_a_token(tmp_path: Path) -> None:
    words = {f"w{i}": i for i in range(70_000)} | {"<|endoftext|>": 70_000, "[UNK]": 70_001}
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "words.json"))
    (tmp_path / "text.txt").write_text("w1 w69999 w70000 w2")
    documents = FileDocuments(tmp_path / "text.txt")
    prepare(documents, tmp_path / "c", kind="bpe", vocabulary=80_000, tokenizer=tmp_path / "words.json")
    assert Corpus.open(tmp_path / "c").tokens.tolist() == [1, 69_999, 70_001, 2, 70_000]


def test_text_json_lines_and_parquet_give_their_documents(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").write_text("never")
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "b.jsonl").write_text('{"text": "line one"}\n\n{"text": "line two"}\n')
    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["row one", "row two"]}), tmp_path / "sub" / "c.parquet"
    )
    documents = FileDocuments(tmp_path)
    assert list(documents) == ["plain", "line one", "line two", "row one", "row two"]
    before = documents.fingerprint()
    (tmp_path / "a.txt").write_text("plaim")
    assert FileDocuments(tmp_path).fingerprint() != before


def test_a_long_file_is_cut_at_blank_lines(tmp_path: Path) -> None:
    paragraphs = ["word " * 2000 + "\n\n"] * 30
    (tmp_path / "long.txt").write_text("".join(paragraphs))
    pieces = list(FileDocuments(tmp_path / "long.txt"))
    assert len(pieces) > 3
    assert "".join(pieces) == "".join(paragraphs)
    assert all(piece.endswith("\n\n") for piece in pieces)


BAD: dict[str, tuple[str, bytes, str]] = {
    "binary": ("x.txt", b"\x00\x01\x02", "not a text file"),
    "latin": ("x.txt", b"caf\xe9 au lait", "not UTF-8"),
    "json": ("x.jsonl", b'{"text": "fine"}\n{oops\n', "x.jsonl:2: not a JSON line"),
    "field": ("x.jsonl", b'{"body": "fine"}\n', "which has body"),
    "array": ("x.jsonl", b"[1]\n", "no object"),
    "parquet": ("x.parquet", b"PAR1 not really", "not a Parquet file"),
    "empty": ("x.txt", b"", "holds no text"),
    "blank": ("x.txt", b"\n \n", "holds no text"),
    "short": ("x.txt", b"two words", "one sample needs 30"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_give_one_line(kind: str, tmp_path: Path) -> None:
    name, content, message = BAD[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        open_dataset(tmp_path / name, small("bert"), cache=tmp_path / "cache")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_and_empty_places_give_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.path=.*nowhere: no such file or folder"):
        open_dataset(tmp_path / "nowhere", small("bert"), cache=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no files"):
        open_dataset(tmp_path / "empty", small("bert"), cache=tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"data\.cache=.*cannot be written"):
        open_dataset(None, small("bert"), cache=tmp_path / "file" / "below")


def test_a_damaged_corpus_is_refused_with_the_file_named(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    prepare(BuiltinDocuments(), folder, kind="wordpiece", vocabulary=512)
    good = open_dataset(folder, small("bert"))
    assert good.name == "builtin"
    data = (folder / TOKENS).read_bytes()

    (folder / TOKENS).write_bytes(data[:-1])
    with pytest.raises(InputError, match=r"tokens\.bin: has \d+ bytes where the index says"):
        open_dataset(folder, small("bert"))
    (folder / TOKENS).write_bytes(bytes(len(data)))
    with pytest.raises(InputError, match=r"tokens\.bin: does not match its checksum"):
        verify(folder, deep=True)
    (folder / INDEX).unlink()
    with pytest.raises(InputError, match=r"tokens\.idx: missing"):
        open_dataset(folder, small("bert"))
    (folder / MANIFEST).write_text("{]")
    with pytest.raises(InputError, match="not a manifest"):
        open_dataset(folder, small("bert"))


def test_another_corpus_is_not_overwritten(tmp_path: Path) -> None:
    prepare(Counted(), tmp_path / "c", kind="bpe", vocabulary=300)
    with pytest.raises(InputError, match="holds another corpus"):
        prepare(Counted(), tmp_path / "c", kind="bpe", vocabulary=301)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        prepare(Counted(), tmp_path / "mine", kind="bpe", vocabulary=300)


def test_equal_text_gives_equal_tokens(tmp_path: Path) -> None:
    for kind in ("wordpiece", "bpe"):
        sums = [
            prepare(Counted(), tmp_path / f"{kind}{n}", kind=kind, vocabulary=320).checksums for n in range(3)
        ]
        assert sums[0] == sums[1] == sums[2]
    assert Corpus.open(tmp_path / "bpe1").tokens.dtype == np.uint16


def test_sentences_are_sequences_for_bert_and_documents_for_gpt(tmp_path: Path) -> None:
    text = "One is here. Two is there!  Three?\n\nA heading\n\nFour goes on\nto the next line."
    (tmp_path / "t.txt").write_text(text)
    documents = FileDocuments(tmp_path / "t.txt")
    bert = prepare(documents, tmp_path / "b", kind="wordpiece", vocabulary=256)
    gpt = prepare(documents, tmp_path / "g", kind="bpe", vocabulary=257)
    assert (bert.sequences, bert.documents) == (5, 1)
    assert (gpt.sequences, gpt.documents) == (1, 1)
    whole = load(tmp_path / "b" / TOKENIZER).encode(text, add_special_tokens=False).ids
    assert Corpus.open(tmp_path / "b").tokens.tolist() == whole
