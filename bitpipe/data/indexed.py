"""Megatron-LM's layout of tokens on disk: ``PREFIX.bin`` with the tokens, ``PREFIX.idx`` with
the sequences in it and the documents that these form.

Our own corpora are written in it, so Megatron reads them; and every file of it, whoever wrote
it, is checked here before anything relies on it (Megatron's reader takes sizes on trust).
The index: 9 bytes of magic, version (u64), code of the token type (u8), number of sequences and
of document bounds (u64 each), then per sequence its length (int32) and its byte offset (int64),
then the document bounds (int64 numbers of sequences, from 0 up to all).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitpipe.errors import InputError

_MAGIC = b"MMIDIDX\x00\x00"
_HEAD = struct.Struct("<9sQBQQ")
_PIECE = 1 << 20  # sequences
_CODES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}


def token_type(vocabulary: int) -> str:
    """The numpy type in which tokens of a vocabulary are stored (Megatron's choice)."""
    return "uint16" if vocabulary < 65500 else "int32"


@dataclass(frozen=True, kw_only=True)
class Index:
    """A checked ``.idx``.

    Attributes:
        dtype: of the tokens.
        lengths: (sequences,) tokens per sequence.
        documents: (documents + 1,) bounds in sequences.
    """

    dtype: str
    lengths: NDArray[np.int32]
    documents: NDArray[np.int64]

    @property
    def ends(self) -> NDArray[np.int64]:
        """(documents,) where each ends, in tokens; without an array as long as there are sequences."""
        counts = np.diff(self.documents)
        tokens = np.zeros(len(counts), np.int64)
        if counts.any():
            firsts = self.documents[:-1][counts > 0]
            tokens[counts > 0] = np.add.reduceat(self.lengths, firsts, dtype=np.int64)
        return np.cumsum(tokens)

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum(dtype=np.int64))


def write_index(path: Path, index: Index) -> None:
    """Write a ``.idx``."""
    code = next(code for code, name in _CODES.items() if name == index.dtype)
    ends = np.cumsum(index.lengths, dtype=np.int64)
    starts = (ends - index.lengths) * np.dtype(index.dtype).itemsize
    with path.open("wb") as stream:
        stream.write(_HEAD.pack(_MAGIC, 1, code, len(index.lengths), len(index.documents)))
        stream.write(index.lengths.astype("<i4").tobytes())
        stream.write(starts.astype("<i8").tobytes())
        stream.write(index.documents.astype("<i8").tobytes())


def read_index(prefix: Path) -> Index:
    """Read and check ``prefix.idx`` against itself and against ``prefix.bin``.

    Raises:
        InputError: a file is missing, truncated or contradicts the other.
    """
    idx, data = (prefix.with_name(prefix.name + suffix) for suffix in (".idx", ".bin"))
    for path in (idx, data):
        if not path.is_file():
            raise InputError("data.path", path, "no such file; the data set needs both .bin and .idx")
    raw = np.memmap(idx, dtype=np.uint8, mode="r") if idx.stat().st_size else np.empty(0, np.uint8)
    if len(raw) < _HEAD.size:
        raise _corrupt(idx, f"{len(raw)} bytes are less than a header")
    magic, version, code, sequences, bounds = _HEAD.unpack(raw[: _HEAD.size].tobytes())
    if magic != _MAGIC:
        raise _corrupt(idx, "does not start as a Megatron index")
    if version != 1 or code not in _CODES:
        raise _corrupt(idx, f"version {version}, token type {code} are not known")
    needed = _HEAD.size + sequences * 12 + bounds * 8
    if len(raw) < needed:
        raise _corrupt(idx, f"{len(raw)} bytes where {sequences} sequences need {needed}")
    at = _HEAD.size
    lengths = raw[at : at + 4 * sequences].view("<i4")
    starts = raw[at + 4 * sequences : at + 12 * sequences].view("<i8")
    documents = raw[at + 12 * sequences : needed].view("<i8")
    dtype = _CODES[code]
    size = _follow(lengths, starts, np.dtype(dtype).itemsize)
    if size is None:
        raise _corrupt(idx, "the sequences do not follow each other")
    if not bounds or documents[0] or documents[-1] != sequences or (np.diff(documents) < 0).any():
        raise _corrupt(idx, "the document bounds do not cover the sequences")
    if data.stat().st_size != size:
        raise InputError(
            "data.path", data, f"has {data.stat().st_size} bytes where the index says {size}: truncated?"
        )
    return Index(dtype=dtype, lengths=lengths, documents=documents)


def _follow(lengths: NDArray[Any], starts: NDArray[Any], item: int) -> int | None:
    """Bytes of all sequences if each starts where the one before ends; piece by piece: every rank looks."""
    end = 0
    for at in range(0, len(lengths), _PIECE):
        piece = lengths[at : at + _PIECE]
        ends = end + np.cumsum(piece, dtype=np.int64) * item
        expected = np.concatenate([[end], ends[:-1]])
        if (piece < 0).any() or not np.array_equal(starts[at : at + _PIECE], expected):
            return None
        end = int(ends[-1])
    return end


def read_tokens(prefix: Path, index: Index) -> NDArray[Any]:
    """All tokens, memory-mapped."""
    path = prefix.with_name(prefix.name + ".bin")
    if not path.stat().st_size:
        return np.empty(0, index.dtype)
    return np.memmap(path, dtype=index.dtype, mode="r")


def _corrupt(path: Path, why: str) -> InputError:
    return InputError("data.path", path, f"corrupt: {why}")
