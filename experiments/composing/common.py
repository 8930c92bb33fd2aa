"""What all cells of a sweep must have in common: every key that does not say what a cell is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from bitpipe.errors import InputError
from experiments.cell import Cell
from experiments.composing.config import OF_A_CELL
from experiments.composing.settings import RunSettings


def check_common(first: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Compare two cells' configurations, as :func:`experiments.composing.compose.plain` returns them.

    Raises:
        InputError: they differ in a key that is not a cell's own; naming both values.
    """
    mine, theirs = dict(_shared("", first)), dict(_shared("", other))
    for key in sorted(mine.keys() | theirs.keys()):
        if mine.get(key) != theirs.get(key):
            raise _one_value(key, mine.get(key), theirs.get(key))


def check_same_settings(cell: Cell, first: RunSettings, other: RunSettings) -> None:
    """Two points of a sweep that are one cell are run once, and so in one way.

    Raises:
        InputError: they ask for two.
    """
    for one in fields(RunSettings):
        if one.name != "data_path" and getattr(first, one.name) != getattr(other, one.name):
            values = getattr(first, one.name), getattr(other, one.name)
            raise _one_value(one.name, *values, f"cell {cell.id} ({cell}) would be run in two ways")


def _one_value(key: str, first: object, other: object, why: str = "") -> InputError:
    hint = "; ".join(filter(None, (why, "type one command for each value")))
    return InputError(key, f"{_word(first)},{_word(other)}", "one value for all cells of a sweep", hint)


def _word(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shared(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key that is not a cell's, with dots, and its value."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if key in OF_A_CELL:
            continue
        if isinstance(value, Mapping) and value:
            yield from _shared(f"{key}.", value)
        else:
            yield key, value
