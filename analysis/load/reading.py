"""What reading one file gives, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

NOTHING = pd.DataFrame()


@dataclass(kw_only=True)
class Reading:
    """One file, read as far as it could be.

    Attributes:
        document: what describes the run: a record (:mod:`experiments.records.record`), or for wandb
            ``{"id", "config", "summary", "exit_code", …}``; None if there is none.
        steps: one row per logged step, numbers only; empty if the file holds none.
        problems: one line per loss; empty if the file is whole.
    """

    document: dict[str, Any] | None = None
    steps: pd.DataFrame = field(default_factory=lambda: NOTHING)
    problems: list[str] = field(default_factory=list)
