"""Damaged and hostile data: one line that names file and place, and text that stays what it is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitpipe.data import corpus, prepare
from bitpipe.data.corpus import known_sha256, read_manifest, verify
from bitpipe.data.documents import FileDocuments
from bitpipe.data.indexed import Index, read_index, write_index
from bitpipe.data.megatron import MegatronDataset, MegatronSource
from bitpipe.data.open import open_dataset
from bitpipe.data.tokenizer import load, vocabulary_of
from bitpipe.errors import InputError

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def one_line(act: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def line_of(act: Callable[[], object]) -> str | None:
    """The one line that it raises; None if it works."""
    try:
        act()
    except InputError as error:
        line = str(error)
    else:
        return None
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "good"}\n{"text": "caf\xe9"}\n', "a.jsonl:2: not UTF-8 text"),
        ("a.jsonl", b'{"text": "x"}\n' * 9 + b'{"text": "\\ud800"}\n', "a.jsonl:10: half a surrogate pair"),
        ("a.jsonl", b"[" * 100_000, "a.jsonl:1: not a JSON line"),
        ("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}", "a.jsonl:1: not a JSON line"),
        ("a.jsonl", b'{"text": 7}', "no such text but int at"),
        ("a.json", b'[{"text": "x"}]', "which has no object"),
        ("a.txt", b"good\ncaf\xe9\n", "a.txt:2: not UTF-8 text"),
        ("a.txt", b"good\n\0\n", "a.txt:2: not a text file"),
        ("a.txt", b"\xff\xfeg\0", "a.txt:1: not UTF-8 text"),
        ("a.parquet", b"PAR1 and no more", "a.parquet: not a Parquet file"),
    ],
)
def test_what_cannot_be_read_names_file_and_line(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in one_line(lambda: list(FileDocuments(tmp_path)))


def test_rows_of_parquet_are_counted_through(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    for bad in (3, 255, 256, 600):
        texts: list[str | None] = ["text"] * 700
        texts[bad] = None
        parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet", row_group_size=100)
        assert f"a.parquet, row {bad + 1}, " in one_line(lambda: list(FileDocuments(tmp_path / "a.parquet")))


def test_a_page_of_parquet_that_is_damaged_names_the_file(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    file = tmp_path / "a.parquet"
    texts = [f"text {number} {number * 7919}" for number in range(5000)]
    parquet.write_table(pyarrow.table({"text": texts}), file, row_group_size=1000, compression="zstd")
    content = bytearray(file.read_bytes())
    for at in range(2000, len(content) // 2, 50):
        content[at] ^= 255
    file.write_bytes(content)
    assert "a.parquet, row " in one_line(lambda: list(FileDocuments(file)))


def test_what_the_file_system_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("text")
    documents = FileDocuments(tmp_path)

    def refuse(*_: object, **__: object) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "open", refuse)
    for act in (lambda: list(documents), documents.fingerprint):
        assert "a.txt: cannot be read (Input/output error)" in one_line(act)


@MANY
@given(content=st.binary(max_size=300), name=st.sampled_from(["a.jsonl", "a.txt", "a.parquet"]))
def test_any_bytes_are_text_or_one_line(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    said = line_of(lambda: list(FileDocuments(tmp_path / name)))
    assert said is None or name in said


@MANY
@given(
    row=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    )
)
def test_any_json_is_text_or_one_line(row: object, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": row}) + "\n" + json.dumps(row))
    said = line_of(lambda: list(FileDocuments(tmp_path / "a.jsonl")))
    assert said is None or "a.jsonl:" in said


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_byte_order_mark_is_no_text(name: str, tmp_path: Path) -> None:
    content = "some text" if name == "a.txt" else '{"text": "some text"}'
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert list(FileDocuments(tmp_path)) == ["some text"]


@pytest.mark.parametrize(
    ("family", "special"), [("bert", "[MASK]"), ("bert", "[SEP]"), ("gpt", "<|endoftext|>")]
)
def test_a_special_token_in_a_text_is_text(corpora: dict[str, Path], family: str, special: str) -> None:
    tokenizer = load(corpora[family] / "tokenizer.json")
    number = tokenizer.token_to_id(special)
    assert number is not None
    assert number not in tokenizer.encode(f"two {special} ranks", add_special_tokens=False).ids


def test_a_vocabulary_keeps_every_line_as_it_stands(tmp_path: Path) -> None:
    entries = ["[PAD]", "a\u2028b", " a", "a ", "\u3000", "\x85", "\x0b", "last"]
    (tmp_path / "vocab.txt").write_text("\ufeff" + "\n".join(entries) + "\n\n", encoding="utf-8")
    assert list(vocabulary_of(tmp_path / "vocab.txt").items()) == [(e, n) for n, e in enumerate(entries)]
    (tmp_path / "vocab.txt").write_text("a\nb\na\n")
    assert "'a' stands twice, in lines 1 and 3" in one_line(lambda: vocabulary_of(tmp_path / "vocab.txt"))


def test_a_lock_that_is_not_there_at_once_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [errno.ENOLCK, errno.EIO]
    monkeypatch.setattr(prepare, "LOCK_WAITS", (0.0, 0.0, 0.0))

    def flock(*_: object) -> None:
        if answers:
            number = answers.pop()
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with prepare.locked(tmp_path / "x"):
        assert not answers
    for number in (errno.ENOLCK, errno.ENOSYS):
        answers[:] = [number] * 9

        def take() -> None:
            with prepare.locked(tmp_path / "x"):
                pass

        assert f"data.cache={tmp_path}: no lock to be had there" in one_line(take)


def test_a_changed_middle_of_the_tokens_is_noticed(corpora: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(corpora["gpt"], tmp_path / "gpt")
    model = small("gpt", vocabulary=300)
    open_dataset(folder, model, cache=tmp_path)
    tokens = bytearray((folder / "tokens.bin").read_bytes())
    stat = (folder / "tokens.bin").stat()
    tokens[len(tokens) // 2] ^= 1
    (folder / "tokens.bin").write_bytes(tokens)
    os.utime(folder / "tokens.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    line = one_line(lambda: open_dataset(folder, model, cache=tmp_path))
    assert "tokens.bin: does not match its checksum" in line


def test_a_checksum_is_worked_out_once_for_an_unchanged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(corpus, "sha256", lambda path: asked.append(path) or f"{len(asked):064d}")
    (tmp_path / "a").write_bytes(b"one")
    assert known_sha256(tmp_path / "a", tmp_path) == known_sha256(tmp_path / "a", tmp_path)
    (tmp_path / "a").write_bytes(b"two")
    assert known_sha256(tmp_path / "a", tmp_path) == f"{2:064d}"
    (tmp_path / "file").touch()
    known_sha256(tmp_path / "a", tmp_path / "file")  # a cache that cannot be written


@pytest.mark.parametrize(
    "change",
    [{"special": []}, {"special": {}}, {"special": {"<|endoftext|>": 900}}, {"tokens": "5"},
     {"checksums": None},
     {"vocabulary": 1.5}, {"tokenizer": "other"}, {"name": None}, {"documents": True}, {"extra": 1}],
)  # fmt: skip
def test_a_manifest_that_says_something_else_is_one_line(
    change: dict[str, object], corpora: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(corpora["gpt"], tmp_path / "gpt")
    values = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**values, **change}))
    assert "manifest.json: not a manifest (" in one_line(lambda: read_manifest(folder))


@MANY
@given(at=st.integers(0, 10**6), flip=st.integers(1, 255), cut=st.booleans(),
       name=st.sampled_from(["tokens.idx", "tokens.bin", "manifest.json", "tokenizer.json"]))  # fmt: skip
def test_any_damage_to_a_prepared_corpus_is_one_line(
    at: int, flip: int, cut: bool, name: str, corpora: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(corpora["gpt"], folder)
    content = bytearray((folder / name).read_bytes())
    at %= len(content)
    content[at] ^= flip
    (folder / name).write_bytes(content[:at] if cut else content)
    if line_of(lambda: verify(folder, deep=True)) is None:
        assert name == "manifest.json", "what has a checksum cannot change unseen"


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"not an array"])
def test_drawn_samples_that_are_damaged_name_their_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokens.npy").write_bytes(content)
    line = one_line(lambda: MegatronSource(tmp_path, micro_batch_size=1, micro_batches=1))
    assert "tokens.npy: damaged" in line
    (tmp_path / "samples.json").write_bytes(content)
    assert "samples.json: not what was drawn" in one_line(lambda: MegatronDataset(folder=tmp_path).name)


@MANY
@given(documents=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6))
def test_documents_end_where_their_sequences_do(documents: list[list[int]], tmp_path: Path) -> None:
    lengths = np.array([n for one in documents for n in one], np.int32)
    bounds = np.cumsum([0, *(len(one) for one in documents)])
    write_index(tmp_path / "x.idx", Index(dtype="uint16", lengths=lengths, documents=bounds))
    (tmp_path / "x.bin").write_bytes(bytes(2 * int(lengths.sum())))
    assert read_index(tmp_path / "x").ends.tolist() == np.cumsum([sum(one) for one in documents]).tolist()
