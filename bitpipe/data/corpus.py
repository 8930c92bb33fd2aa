"""A prepared corpus on disk: tokens in Megatron's layout, their tokenizer, and a manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitpipe.data.indexed import read_index, read_tokens
from bitpipe.errors import InputError

FORMAT = 2
MANIFEST, TOKENIZER = "manifest.json", "tokenizer.json"
PREFIX = "tokens"
TOKENS, INDEX = f"{PREFIX}.bin", f"{PREFIX}.idx"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a prepared folder holds.

    Attributes:
        name: of the text it was made from.
        fingerprint: of the text and of every setting that shaped the tokens.
        tokenizer: ``wordpiece`` or ``bpe``.
        vocabulary: entries of the tokenizer.
        special: special tokens and their ids.
        tokens, sequences, documents: counts. A sequence is a sentence for BERT, a document
            for GPT.
        checksums: sha256 of every other file.
        format: version of this layout.
    """

    name: str
    fingerprint: str
    tokenizer: str
    vocabulary: int
    special: dict[str, int]
    tokens: int
    sequences: int
    documents: int
    checksums: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest.

    Raises:
        InputError: there is none, it is not one, or another version wrote it.
    """
    path = folder / MANIFEST
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        manifest = Manifest(**values)
    except FileNotFoundError:
        raise InputError("data.path", folder, "no prepared corpus: manifest.json is missing") from None
    except (ValueError, TypeError) as error:
        raise InputError("data.path", path, f"not a manifest ({error})") from None
    if manifest.format != FORMAT:
        raise InputError(
            "data.path", folder, f"written in format {manifest.format}, this is {FORMAT}", "prepare it again"
        )
    return manifest


def sha256(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify(folder: Path, *, deep: bool = False) -> Manifest:
    """Check a prepared folder: files there, complete and consistent; with ``deep`` also every checksum.

    Raises:
        InputError: naming the first file that is missing, truncated or altered.
    """
    manifest = read_manifest(folder)
    for name, checksum in manifest.checksums.items():
        path = folder / name
        if not path.is_file():
            raise InputError("data.path", path, "missing from the prepared corpus", "prepare it again")
        if deep and sha256(path) != checksum:
            raise InputError("data.path", path, "does not match its checksum", "prepare it again")
    index = read_index(folder / PREFIX)
    found = (index.tokens, len(index.lengths), len(index.documents) - 1)
    if found != (manifest.tokens, manifest.sequences, manifest.documents):
        raise InputError("data.path", folder / INDEX, "contradicts the manifest", "prepare it again")
    return manifest


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """An opened corpus; arrays are memory-mapped, so all ranks of a node share the pages.

    Attributes:
        tokens: (count,) token ids.
        ends: (documents,) where each document ends in ``tokens``.
    """

    manifest: Manifest
    tokens: NDArray[Any]
    ends: NDArray[np.int64]

    @classmethod
    def open(cls, folder: Path) -> Corpus:
        """Map a prepared folder.

        Raises:
            InputError: see :func:`verify`.
        """
        manifest = verify(folder)
        if not manifest.tokens:
            raise InputError("data.path", folder, "the corpus holds no tokens")
        index = read_index(folder / PREFIX)
        bounds = np.concatenate([[0], np.cumsum(index.lengths, dtype=np.int64)])
        return cls(
            manifest=manifest,
            tokens=read_tokens(folder / PREFIX, index),
            ends=bounds[index.documents[1:]],
        )
