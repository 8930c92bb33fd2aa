"""Blocks as JSON: what a sweep's folder keeps for ``requeue`` and ``collect``, and reads without trust."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from experiments.records.store import write_text
from experiments.running.block import Block

NAME = "blocks.json"


def write(folder: Path, blocks: Sequence[Block]) -> None:
    """Keep the blocks, each cell beside its id.

    Raises:
        NotWritten: the file system refuses.
    """
    document = [{"block": asdict(block), "ids": [cell.id for cell in block.cells]} for block in blocks]
    write_text(folder / NAME, json.dumps(document, default=str) + "\n")


def read(folder: Path) -> list[Block]:
    """The blocks as they were submitted.

    Raises:
        InputError: there are none (older versions kept another form), or they were changed.
    """
    path = folder / NAME
    try:
        blocks = []
        for entry in json.loads(path.read_text(encoding="utf-8")):
            block = _built(Block, entry["block"])
            if [cell.id for cell in block.cells] != entry["ids"]:
                raise InputError("sweep", path, "its cells are not those of their ids: the file was changed")
            blocks.append(block)
    except OSError as error:
        hint = "type the sweep's command again"
        raise InputError("sweep", path, f"cannot be read: {error.strerror or error}", hint) from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("sweep", path, f"holds no blocks ({type(error).__name__})") from error
    return blocks


def _built(kind: Any, value: Any) -> Any:
    """JSON data as a field of that type: dataclasses, tuples and paths become what they were."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _built(_chosen([option for option in inside if option is not type(None)], value), value)
    if is_dataclass(kind) and isinstance(kind, type):
        types_of = typing.get_type_hints(kind)
        unknown = value.keys() - {field.name for field in fields(kind)}
        if unknown:
            raise KeyError(unknown.pop())
        return kind(**{name: _built(types_of[name], part) for name, part in value.items()})
    if origin is tuple:
        each = inside[:1] * len(value) if inside[1:] == (...,) else inside
        return tuple(_built(one, part) for one, part in zip(each, value, strict=True))
    if kind is Path:
        return Path(value)
    return value


def _chosen(options: list[Any], value: Any) -> Any:
    """Which of several types a value was of: dataclasses are told by their fields."""
    if isinstance(value, Mapping):
        for option in options:
            if is_dataclass(option) and value.keys() == {field.name for field in fields(option)}:
                return option
    return options[0]
