"""Where text comes from: iterators over documents, and a fingerprint of what they will yield."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bitpipe.errors import InputError

BUILTIN = "builtin"
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_RULE = re.compile(r"([^\w\s])\1{3,}")
_READER = b"reader 2"
"""Changes what every text file of one's own is taken for: byte order marks and special tokens are text."""
PIECE = 64 * 1024
"""A text file becomes documents of about this many characters, cut at blank lines."""


class Documents(Protocol):
    """Text in a fixed order, so that an interrupted preparation can go on where it stopped."""

    @property
    def name(self) -> str:
        """How people call it."""
        ...

    def fingerprint(self) -> str:
        """A hash of all the text, or of what pins it."""
        ...

    def __iter__(self) -> Iterator[str]: ...


class BuiltinDocuments:
    """Python's own language reference (``pydoc_data.topics``), part of every installation.

    Lines drawn of one repeated sign (rules, underlines) are shortened to three of it.
    """

    name = BUILTIN

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for text in self:
            digest.update(text.encode())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[str]:
        from pydoc_data.topics import topics

        for key in sorted(topics):
            yield _RULE.sub(r"\1\1\1", topics[key])


class FileDocuments:
    """A file or a folder (searched recursively, in sorted order, hidden files left out).

    ``.jsonl`` and ``.json`` hold one JSON object a line, ``.parquet`` one row a document, both
    with the text in ``field``; every other file is plain UTF-8 text.
    """

    def __init__(self, path: Path, field: str = "text") -> None:
        if not path.exists():
            raise InputError("data.path", path, "no such file or folder")
        self.field = field
        self.name = path.name
        self._root = path
        self.files = [path] if path.is_file() else sorted(_visible_files(path))
        if not self.files:
            raise InputError("data.path", path, "the folder holds no files")

    def fingerprint(self) -> str:
        digest = hashlib.sha256(_READER + self.field.encode())
        for file in self.files:
            digest.update(os.fsencode(file.relative_to(self._root)) + b"\0")
            with readable(file), file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[str]:
        for file in self.files:
            yield from read_file(file, self.field)


def sentences(text: str) -> list[str]:
    """Split at white space after a full stop, question or exclamation mark, and at blank lines.

    WordPiece cuts at white space anyway, so the tokens stay what they are.
    """
    return [part for part in _SENTENCE.split(text) if part.strip()]


def _visible_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def read_file(file: Path, field: str) -> Iterator[str]:
    """The documents of one file.

    Raises:
        InputError: it cannot be read or is not what its name says; the line names the file and the
            place: line or row, from 1.
    """
    with readable(file):
        yield from _documents(file, field)


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn what the file system says about a file into one line.

    Raises:
        InputError: it cannot be read, or not any more.
    """
    try:
        yield
    except OSError as error:
        raise InputError("data.path", file, f"cannot be read ({error.strerror or error})") from None


def _documents(file: Path, field: str) -> Iterator[str]:
    if file.suffix in (".jsonl", ".json"):
        return _json_lines(file, field)
    if file.suffix == ".parquet":
        return _parquet_rows(file, field)
    return _text_pieces(file)


def _text_pieces(file: Path) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for number, line in _lines(file):
        if "\0" in line:
            raise InputError("data.path", f"{file}:{number}", "not a text file")
        lines.append(line)
        size += len(line)
        if size >= PIECE and not line.strip():
            yield "".join(lines)
            lines, size = [], 0
    if size:
        yield "".join(lines)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines, as Python's text files have them; a byte order mark is none of the first one's text."""
    with file.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                at = f"{file}:{number}"
                raise InputError("data.path", at, f"not UTF-8 text ({error.reason})") from None
            yield number, line.replace("\r\n", "\n").replace("\r", "\n")


def _json_lines(file: Path, field: str) -> Iterator[str]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError("data.path", f"{file}:{number}", f"not a JSON line ({error})") from None
        yield _text_of(row, field, f"{file}:{number}")


def _text_of(row: object, field: str, where: str) -> str:
    text = row.get(field) if isinstance(row, dict) else None
    if not isinstance(text, str):
        names = ", ".join(sorted(row)) if isinstance(row, dict) else "no object"
        kind = "" if text is None else f" but {type(text).__name__}"
        raise InputError("data.field", field, f"no such text{kind} at {where}, which has {names}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"half a surrogate pair, character {error.start + 1} of its text"
        raise InputError("data.path", where, half) from None
    return text


def _parquet_rows(file: Path, field: str) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        why = str(error).partition("\n")[0]
        raise InputError("data.path", file, f"not a Parquet file ({why})") from None
    number = 0
    with table:
        if field not in table.schema_arrow.names:
            names = ", ".join(table.schema_arrow.names)
            raise InputError("data.field", field, f"no such column in {file}, which has {names}")
        batches = table.iter_batches(batch_size=256, columns=[field])
        while True:
            try:
                batch = next(batches, None)
                texts = [] if batch is None else batch.column(0).to_pylist()
            except (pyarrow.ArrowException, OSError, ValueError) as error:
                why = str(error).partition("\n")[0]
                raise InputError(
                    "data.path", f"{file}, row {number + 1} or later", f"damaged ({why})"
                ) from None
            if batch is None:
                return
            for number, text in enumerate(texts, number + 1):  # noqa: B020 rows go on from batch to batch
                yield _text_of({field: text}, field, f"{file}, row {number}")
