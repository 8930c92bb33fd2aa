"""A prepared corpus on disk: one flat array of tokens, document ends, tokenizer, manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitpipe.errors import InputError

FORMAT = 1
MANIFEST, TOKENS, ENDS, TOKENIZER = "manifest.json", "tokens.bin", "ends.bin", "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a prepared folder holds.

    Attributes:
        name: of the text it was made from.
        fingerprint: of the text and of every setting that shaped the tokens.
        tokenizer: ``wordpiece`` or ``bpe``.
        vocabulary: entries of the tokenizer.
        special: special tokens and their ids.
        dtype: numpy type of ``tokens.bin``; ``ends.bin`` is int64, one end per document.
        tokens, documents: counts.
        checksums: sha256 of every other file.
        format: version of this layout.
    """

    name: str
    fingerprint: str
    tokenizer: str
    vocabulary: int
    special: dict[str, int]
    dtype: str
    tokens: int
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
    """Check a prepared folder: files there and complete; with ``deep`` also every checksum.

    Raises:
        InputError: naming the first file that is missing, truncated or altered.
    """
    manifest = read_manifest(folder)
    sizes = {TOKENS: manifest.tokens * np.dtype(manifest.dtype).itemsize, ENDS: manifest.documents * 8}
    for name in manifest.checksums:
        path = folder / name
        if not path.is_file():
            raise InputError("data.path", path, "missing from the prepared corpus", "prepare it again")
        if name in sizes and path.stat().st_size != sizes[name]:
            raise InputError(
                "data.path",
                path,
                f"has {path.stat().st_size} bytes where the manifest says {sizes[name]}",
                "prepare it again",
            )
        if deep and sha256(path) != manifest.checksums[name]:
            raise InputError("data.path", path, "does not match its checksum", "prepare it again")
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
        return cls(
            manifest=manifest,
            tokens=np.memmap(folder / TOKENS, dtype=manifest.dtype, mode="r"),
            ends=np.memmap(folder / ENDS, dtype=np.int64, mode="r"),
        )
