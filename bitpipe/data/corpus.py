"""A prepared corpus on disk: tokens in Megatron's layout, their tokenizer, and a manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bitpipe.data.indexed import read_index, read_tokens
from bitpipe.data.tokenizer import SPECIAL
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

    def check(self) -> None:
        """Look at the kinds of what a file said.

        Raises:
            TypeError: names the entry.
        """
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            origin = get_origin(kind) or kind
            inside = value.values() if isinstance(value, dict) else ()
            wanted = get_args(kind)[1:] if origin is dict else ()
            if type(value) is not origin or any(type(entry) not in wanted for entry in inside):
                raise TypeError(f"{name}={value!r:.60} is no {kind if origin is dict else kind.__name__}")
        unknown = [name for name in self.special.values() if not 0 <= name < self.vocabulary]
        missing = [name for name in SPECIAL.get(self.tokenizer, ()) if name not in self.special]
        if unknown or missing or self.tokenizer not in SPECIAL:
            raise TypeError(f"tokenizer={self.tokenizer} with special={self.special} is none of ours")

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
        manifest.check()
    except FileNotFoundError:
        raise InputError("data.path", folder, "no prepared corpus: manifest.json is missing") from None
    except OSError as error:
        raise InputError("data.path", path, f"cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, RecursionError) as error:
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


def known_sha256(path: Path, cache: Path) -> str:
    """Checksum of a large file, worked out once for as long as the file stays what it is.

    Args:
        path: the file; size, inode and the times of its last change tell whether it is the same.
        cache: folder in which checksums are noted; a folder that cannot be written is done without.
    """
    stat = path.stat()
    same = (str(path.resolve()), stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
    note = cache / "checksums" / hashlib.sha256(repr(same).encode()).hexdigest()[:32]
    with contextlib.suppress(OSError, ValueError):
        if len(found := note.read_text(encoding="ascii")) == 64:
            return found
    found = sha256(path)
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        new = note.with_name(f"{note.name}.{os.getpid()}")
        new.write_text(found, encoding="ascii")
        new.replace(note)
    return found


def verify(folder: Path, *, deep: bool = False, cache: Path | None = None) -> Manifest:
    """Check a prepared folder: files there, complete and consistent; with ``deep`` also every checksum.

    With a ``cache``, a checksum that was found for the same file before is not worked out again.

    Raises:
        InputError: naming the first file that is missing, truncated or altered.
    """
    manifest = read_manifest(folder)
    for name in manifest.checksums:
        path = folder / name
        if not path.is_file():
            raise InputError("data.path", path, "missing from the prepared corpus", "prepare it again")
    index = read_index(folder / PREFIX)
    found = (index.tokens, len(index.lengths), len(index.documents) - 1)
    if found != (manifest.tokens, manifest.sequences, manifest.documents):
        raise InputError("data.path", folder / INDEX, "contradicts the manifest", "prepare it again")
    for name, checksum in manifest.checksums.items() if deep else ():
        path = folder / name
        if (sha256(path) if cache is None else known_sha256(path, cache)) != checksum:
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
        index = read_index(folder / PREFIX)
        return cls(manifest=manifest, tokens=read_tokens(folder / PREFIX, index), ends=index.ends)
