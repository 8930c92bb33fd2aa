"""Megatron-format files that are not what they should be: one clear line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.data import open_dataset
from bitpipe.errors import InputError
from tests.data.conftest import small


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
