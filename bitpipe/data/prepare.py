"""From documents to a prepared corpus: once, resumable, atomic, safe among many processes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bitpipe.data import tokenizer as tokenizers
from bitpipe.data.corpus import (
    ENDS,
    FORMAT,
    MANIFEST,
    TOKENIZER,
    TOKENS,
    Manifest,
    read_manifest,
    sha256,
)
from bitpipe.data.documents import Documents
from bitpipe.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STATE = "state.json"
_BATCH = 256
"""Documents encoded, written and check-pointed together."""
TRAINING_CHARACTERS = 50_000_000
"""How much text a tokenizer is trained on at most."""


def fingerprint(
    documents: Documents,
    *,
    kind: str,
    vocabulary: int,
    max_tokens: int | None = None,
    tokenizer: Path | None = None,
) -> str:
    """Sixteen hex digits of the text and of every setting that shapes the tokens."""
    parts = {
        "format": FORMAT,
        "text": documents.fingerprint(),
        "kind": kind,
        "vocabulary": vocabulary,
        "max_tokens": max_tokens,
        "tokenizer": sha256(tokenizer) if tokenizer else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def prepare(
    documents: Documents,
    folder: Path,
    *,
    kind: str,
    vocabulary: int,
    max_tokens: int | None = None,
    tokenizer: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Make ``folder`` a prepared corpus; returns at once if it already is this one.

    Work goes on in ``folder.partial`` and is renamed when complete, under a file lock: of
    several processes that ask at once, one works and the others wait. A killed preparation is
    continued from its last check-point.

    Args:
        documents: the text.
        folder: where the corpus shall be.
        kind: ``wordpiece`` or ``bpe``.
        vocabulary: most entries of the tokenizer.
        max_tokens: stop after the document that reaches this many tokens.
        tokenizer: a ``tokenizer.json`` to use instead of training one.
        progress: called with (documents, tokens) after every batch.

    Raises:
        InputError: the text cannot be read or is empty, or ``folder`` holds another corpus.
    """
    if max_tokens is not None and max_tokens < 1:
        raise InputError("max_tokens", max_tokens, "a whole number from 1")
    wanted = fingerprint(
        documents, kind=kind, vocabulary=vocabulary, max_tokens=max_tokens, tokenizer=tokenizer
    )
    if _is_there(folder, wanted):
        return read_manifest(folder)
    with _lock(folder):
        if _is_there(folder, wanted):
            return read_manifest(folder)
        partial = folder.with_name(folder.name + ".partial")
        state = _resume(partial, wanted)
        if state is None:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            _first_step(documents, partial, kind, vocabulary, tokenizer)
            state = _State(fingerprint=wanted)
            state.save(partial)
        _encode(documents, partial, state, max_tokens, progress)
        manifest = _finish(documents, partial, kind, wanted)
        partial.rename(folder)
    return manifest


def _is_there(folder: Path, wanted: str) -> bool:
    if not (folder / MANIFEST).exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError("out", folder, "the folder is not empty and holds no prepared corpus")
        return False
    found = read_manifest(folder).fingerprint
    if found != wanted:
        raise InputError("out", folder, f"holds another corpus ({found}, this is {wanted})", "remove it")
    return True


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = folder.with_name(folder.name + ".lock").open("w")
    except OSError as error:
        raise InputError("data.cache", folder.parent, f"cannot be written ({error.strerror})") from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _first_step(documents: Documents, partial: Path, kind: str, vocabulary: int, given: Path | None) -> None:
    """Train or copy the tokenizer and start empty files."""
    if given is not None:
        size = tokenizers.load(given).get_vocab_size()
        if size > vocabulary:
            raise InputError("model.vocabulary", vocabulary, f"the given tokenizer has {size} entries")
        shutil.copyfile(given, partial / TOKENIZER)
    else:
        trained = tokenizers.train(kind, _head(documents), vocabulary)
        trained.save(str(partial / TOKENIZER))
    (partial / TOKENS).touch()
    (partial / ENDS).touch()


def _head(documents: Documents) -> Iterator[str]:
    seen = 0
    for text in documents:
        yield text
        seen += len(text)
        if seen >= TRAINING_CHARACTERS:
            return


@dataclass(kw_only=True)
class _State:
    """How far a preparation has come: documents read and written, tokens written."""

    fingerprint: str
    read: int = 0
    written: int = 0
    tokens: int = 0
    done: bool = False

    def save(self, partial: Path) -> None:
        new = partial / (STATE + ".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(partial / STATE)


def _resume(partial: Path, wanted: str) -> _State | None:
    try:
        state = _State(**json.loads((partial / STATE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return state if state.fingerprint == wanted else None


def _dtype(tokenizer: Tokenizer) -> str:
    return "uint16" if tokenizer.get_vocab_size() <= 65536 else "uint32"


def _encode(
    documents: Documents,
    partial: Path,
    state: _State,
    max_tokens: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    tokenizer = tokenizers.load(partial / TOKENIZER)
    dtype = _dtype(tokenizer)
    end = tokenizer.token_to_id(tokenizers.END)
    texts = islice(iter(documents), state.read, None)
    with (partial / TOKENS).open("r+b") as data, (partial / ENDS).open("r+b") as ends:
        # What a killed process wrote after its last check-point is cut off.
        data.truncate(state.tokens * np.dtype(dtype).itemsize)
        ends.truncate(state.written * 8)
        data.seek(0, os.SEEK_END)
        ends.seek(0, os.SEEK_END)
        while not state.done:
            batch = list(islice(texts, _BATCH))
            state.done = len(batch) < _BATCH
            state.read += len(batch)
            for encoding in tokenizer.encode_batch(batch, add_special_tokens=False):
                ids = encoding.ids
                if not ids:
                    continue
                if end is not None:
                    ids.append(end)
                data.write(np.asarray(ids, dtype=dtype).tobytes())
                state.tokens += len(ids)
                state.written += 1
                ends.write(np.int64(state.tokens).tobytes())
                if max_tokens is not None and state.tokens >= max_tokens:
                    state.done = True
                    break
            for stream in (data, ends):
                stream.flush()
                os.fsync(stream.fileno())
            state.save(partial)
            if progress is not None:
                progress(state.written, state.tokens)


def _finish(documents: Documents, partial: Path, kind: str, wanted: str) -> Manifest:
    tokenizer = tokenizers.load(partial / TOKENIZER)
    dtype = _dtype(tokenizer)
    tokens = (partial / TOKENS).stat().st_size // np.dtype(dtype).itemsize
    if not tokens:
        shutil.rmtree(partial)
        raise InputError("data.path", documents.name, "holds no text")
    special = {}
    for name in tokenizers.SPECIAL[kind]:
        number = tokenizer.token_to_id(name)
        if number is None:
            raise InputError("data.tokenizer", kind, f"the given tokenizer lacks the special token {name}")
        special[name] = number
    manifest = Manifest(
        name=documents.name,
        fingerprint=wanted,
        tokenizer=kind,
        vocabulary=tokenizer.get_vocab_size(),
        special=special,
        dtype=dtype,
        tokens=tokens,
        documents=(partial / ENDS).stat().st_size // 8,
        checksums={name: sha256(partial / name) for name in (TOKENIZER, TOKENS, ENDS)},
    )
    (partial / STATE).unlink(missing_ok=True)
    manifest.write(partial)
    return manifest
