"""What was checked, against which bound, and what came out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
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


def write(folder: Path, device: str, seconds: float, checks: Sequence[Check], **measured: Any) -> Path:
    """Write ``report.json``: the checks and every number behind them; returns its path."""
    path = folder / "report.json"
    document = {
        "device": device,
        "origin": "measured",
        "seconds": seconds,
        "checks": [asdict(check) for check in checks],
        **measured,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path
