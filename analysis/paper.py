"""The paper's printed values: ``results/paper/*.csv``, read as they are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from bitpipe.errors import choose

FOLDER = Path(__file__).parent.parent / "results" / "paper"


def printed(name: str) -> pd.DataFrame:
    """One of the paper's tables, for instance ``table6_ablation``.

    Raises:
        InputError: no such file; names the nearest.
    """
    return _read(choose("paper table", name, [path.stem for path in FOLDER.glob("*.csv")])).copy()


@cache
def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / f"{name}.csv")
