"""A site file's text: keys and values as they were typed, whatever YAML would make of them.

YAML 1.1 reads ``1:30:00`` as 5400, ``0123456`` as 42798 and ``no`` as false. Here a scalar is its
text; what it means is decided by the key that it belongs to (:mod:`slurm.site`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bitpipe.errors import InputError

Value = None | str | tuple[str, ...] | dict[str, "str | tuple[str, ...] | None"]
_NOTHING = ("", "~", "null", "Null", "NULL")
LONGEST = 1 << 20
"""A site file is a page; what is longer is none."""


def read(file: Path) -> dict[str, Value]:
    """Keys and values: text, a list of texts, or pairs of names and either; None where nothing stands.

    Raises:
        InputError: it cannot be read, is no YAML of that form, or names a key twice.
    """
    try:
        if not file.is_file():  # a pipe or a device would be read for ever
            raise InputError("site", file, "expected a regular file")
        if file.stat().st_size > LONGEST:
            raise InputError("site", file, f"longer than {LONGEST} bytes")
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError("site", file, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError("site", file, f"not UTF-8 (byte {error.start})") from error
    return parse(text, file)


def parse(text: str, file: Path) -> dict[str, Value]:
    """The same from a text; ``file`` is for messages.

    Raises:
        InputError: as :func:`read`.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        raise InputError("site", file, f"not YAML (line {line})" if line else "not YAML") from error
    except (RecursionError, ValueError) as error:
        raise InputError("site", file, "not YAML that a site file needs: nested too deep") from error
    if root is None or (isinstance(root, yaml.ScalarNode) and root.value == ""):
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise InputError("site", file, "expected keys and values, as in site.example.yaml")
    return {key: _value(f"site.{key}", node) for key, node in _pairs("site", root)}


def _pairs(key: str, node: yaml.MappingNode) -> list[tuple[str, yaml.Node]]:
    found: dict[str, yaml.Node] = {}
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            raise InputError(key, f"line {name.start_mark.line + 1}", "expected a name before the colon")
        if name.value in found:
            raise InputError(f"{key}.{_shown(name.value)}", f"line {name.start_mark.line + 1}", "given twice")
        found[name.value] = value
    return list(found.items())


def _value(key: str, node: yaml.Node) -> Value:
    if isinstance(node, yaml.MappingNode):
        return {name: _entry(f"{key}.{name}", value) for name, value in _pairs(key, node)}
    return _entry(key, node)


def _entry(key: str, node: yaml.Node) -> str | tuple[str, ...] | None:
    if isinstance(node, yaml.SequenceNode):
        return tuple(_scalar(key, entry) or "" for entry in node.value)
    return _scalar(key, node)


def _scalar(key: str, node: yaml.Node) -> str | None:
    if not isinstance(node, yaml.ScalarNode):
        line = node.start_mark.line + 1
        raise InputError(_shown(key), f"line {line}", "expected one value, found more inside it")
    if node.style is None and node.value in _NOTHING:
        return None
    return str(node.value)


def _shown(text: str) -> str:
    return text if text.isprintable() and len(text) < 80 else repr(text)[:80]


def text(key: str, value: Any, *, lines: bool = False) -> str:
    """One value as text.

    Args:
        key: for the message.
        value: text, or what Python has for a number or a truth value.
        lines: whether it may have several lines.

    Raises:
        InputError: it is a list or pairs, or holds control characters: in a script a line feed would begin
            a line of its own.
    """
    if isinstance(value, bool):
        value = str(value).lower()
    if not isinstance(value, str | int | float):
        raise InputError(key, repr(value)[:80], "expected one value")
    one = str(value)
    if not one.replace("\n", "" if lines else "\n").replace("\t", " ").isprintable():
        raise InputError(key, repr(one)[:80], "holds a line break or a control character")
    return one
