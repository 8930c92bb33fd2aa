"""From documents to a prepared corpus: once, resumable, atomic, safe among many processes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from bitpipe.data import tokenizer as tokenizers
from bitpipe.data.corpus import (
    FORMAT,
    INDEX,
    MANIFEST,
    TOKENIZER,
    TOKENS,
    Manifest,
    read_manifest,
    sha256,
)
from bitpipe.data.documents import Documents, sentences
from bitpipe.data.indexed import Index, token_type, write_index
from bitpipe.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STATE, LENGTHS, BOUNDS = "state.json", "lengths.partial", "bounds.partial"
LOCK_WAITS = (0.2, 0.5, 1.0, 2.0)
"""Seconds before a lock that the file system did not give is asked for again."""
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
    if tokenizer is not None:
        tokenizers.load(tokenizer)
    wanted = fingerprint(
        documents, kind=kind, vocabulary=vocabulary, max_tokens=max_tokens, tokenizer=tokenizer
    )
    if _is_there(folder, wanted):
        return read_manifest(folder)
    with locked(folder):
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
        _encode(documents, partial, state, kind, max_tokens, progress)
        manifest = _finish(documents, partial, kind, wanted)
        partial.rename(folder)
    return manifest


def _is_there(folder: Path, wanted: str) -> bool:
    if folder.exists() and not folder.is_dir():
        raise InputError("out", folder, "is a file, not a folder")
    if not (folder / MANIFEST).exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError("out", folder, "the folder is not empty and holds no prepared corpus")
        return False
    found = read_manifest(folder).fingerprint
    if found != wanted:
        raise InputError("out", folder, f"holds another corpus ({found}, this is {wanted})", "remove it")
    return True


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the file lock of ``folder``: of several processes, one at a time.

    Raises:
        InputError: the place cannot be written, or its file system has no locks.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        handle = folder.with_name(folder.name + ".lock").open("w")
    except OSError as error:
        raise InputError("data.cache", folder.parent, f"cannot be written ({error.strerror})") from None
    with handle:
        _lock(handle, folder)
        yield


def _lock(handle: TextIO, folder: Path) -> None:
    """Take the lock; a server of locks that is away for a moment is asked again."""
    for wait in (*LOCK_WAITS, None):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            if wait is None or error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
                why = f"no lock to be had there ({error.strerror})"
                hint = "use one on a file system that has locks"
                raise InputError("data.cache", folder.parent, why, hint) from None
            time.sleep(wait)
        else:
            return


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
    for name in (TOKENS, LENGTHS, BOUNDS):
        (partial / name).touch()


def _head(documents: Documents) -> Iterator[str]:
    seen = 0
    for text in documents:
        yield text
        seen += len(text)
        if seen >= TRAINING_CHARACTERS:
            return


@dataclass(kw_only=True)
class _State:
    """How far a preparation has come: documents read; documents, sequences, tokens written."""

    fingerprint: str
    read: int = 0
    written: int = 0
    sequences: int = 0
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


def _encode(
    documents: Documents,
    partial: Path,
    state: _State,
    kind: str,
    max_tokens: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    tokenizer = tokenizers.load(partial / TOKENIZER)
    dtype = np.dtype(token_type(tokenizer.get_vocab_size()))
    texts = islice(iter(documents), state.read, None)
    with ExitStack() as stack:
        data, lengths, bounds = (
            stack.enter_context((partial / name).open("r+b")) for name in (TOKENS, LENGTHS, BOUNDS)
        )
        # What a killed process wrote after its last check-point is cut off.
        data.truncate(state.tokens * dtype.itemsize)
        lengths.truncate(state.sequences * 4)
        bounds.truncate(state.written * 8)
        for stream in (data, lengths, bounds):
            stream.seek(0, os.SEEK_END)
        while not state.done:
            batch = list(islice(texts, _BATCH))
            state.done = len(batch) < _BATCH
            state.read += len(batch)
            for sequences in _encoded(tokenizer, kind, batch):
                for ids in sequences:
                    data.write(np.asarray(ids, dtype=dtype).tobytes())
                    state.tokens += len(ids)
                lengths.write(np.asarray([len(ids) for ids in sequences], dtype=np.int32).tobytes())
                state.sequences += len(sequences)
                bounds.write(np.int64(state.sequences).tobytes())
                state.written += 1
                if max_tokens is not None and state.tokens >= max_tokens:
                    state.done = True
                    break
            for stream in (data, lengths, bounds):
                stream.flush()
                os.fsync(stream.fileno())
            state.save(partial)
            if progress is not None:
                progress(state.written, state.tokens)


def _encoded(tokenizer: Tokenizer, kind: str, texts: list[str]) -> Iterator[list[list[int]]]:
    """Per document that has any, its sequences: sentences for WordPiece, else one and an end."""
    parts = [sentences(text) if kind == "wordpiece" else [text] for text in texts]
    flat = [sentence for part in parts for sentence in part]
    encodings = iter(tokenizer.encode_batch(flat, add_special_tokens=False))
    end = tokenizer.token_to_id(tokenizers.END)
    for part in parts:
        found = [ids for ids in (next(encodings).ids for _ in part) if ids]
        if found:
            if end is not None:
                found[-1].append(end)
            yield found


def _finish(documents: Documents, partial: Path, kind: str, wanted: str) -> Manifest:
    tokenizer = tokenizers.load(partial / TOKENIZER)
    lengths = np.fromfile(partial / LENGTHS, dtype=np.int32)
    bounds = np.fromfile(partial / BOUNDS, dtype=np.int64)
    if not len(lengths):
        shutil.rmtree(partial)
        raise InputError("data.path", documents.name, "holds no text")
    index = Index(
        dtype=token_type(tokenizer.get_vocab_size()),
        lengths=lengths,
        documents=np.concatenate([[0], bounds]),
    )
    write_index(partial / INDEX, index)
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
        tokens=index.tokens,
        sequences=len(lengths),
        documents=len(bounds),
        checksums={name: sha256(partial / name) for name in (TOKENIZER, TOKENS, INDEX)},
    )
    manifest.write(partial)
    for name in (STATE, LENGTHS, BOUNDS):
        (partial / name).unlink(missing_ok=True)
    return manifest
