"""The one error that bad input raises, and the one sentence it speaks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: one line that names the key, the value, what is allowed, the nearest choice.

    Command lines print it without a traceback and exit with status 2.
    """

    def __init__(self, key: str, value: object, allowed: str, hint: str = "") -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        self.hint = hint
        super().__init__(_one_line(f"{key}={value}: {allowed}" + (f" ({hint})" if hint else "")))

    def __reduce__(self) -> tuple[type, tuple[str, object, str, str]]:
        return type(self), (self.key, self.value, self.allowed, self.hint)


def _one_line(text: str) -> str:
    """Line breaks and other control characters, which any value may hold, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def choose(key: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    Raises:
        InputError: it is not; the message lists the choices and names the nearest.
    """
    names = sorted(choices)
    if value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.4)  # text, by its type; a file may lie
    raise InputError(
        key, value, f"allowed are {', '.join(names)}", f"did you mean {near[0]}?" if near else ""
    )
