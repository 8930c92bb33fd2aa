"""What was checked, against which bound, and what came out: one file, written again after every step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bitpipe.files import replacing


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was looked at.
        value: what was found.
        bound: what it had to be, in words.
        passed: whether it was.
    """

    name: str
    value: str
    bound: str
    passed: bool

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'MISSED'} {self.name}: {self.value} ({self.bound})"


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all; checks and timings as their fields."""
    with replacing(path) as half:
        half.write_text(json.dumps(document, indent=1, default=asdict) + "\n")
