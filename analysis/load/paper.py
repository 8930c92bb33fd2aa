"""The paper's printed values: ``results/paper/*.csv``, read as they are."""

from __future__ import annotations

from functools import cache

import pandas as pd

from bitpipe.checkout import ROOT
from bitpipe.errors import choose

FOLDER = ROOT / "results" / "paper"


def printed(name: str) -> pd.DataFrame:
    """One of the paper's tables, for instance ``table6_ablation``.

    Raises:
        InputError: no such file; names the nearest.
    """
    return _read(choose("paper table", name, [path.stem for path in FOLDER.glob("*.csv")])).copy()


def ablation() -> pd.DataFrame:
    """Table 6 with N = B̂/(B·W) beside what it prints; W and B come from ``assumptions.csv``."""
    table, assumed = printed("table6_ablation"), printed("assumptions").set_index("key")["value"]
    samples = int(assumed["table6.micro_batch"]) * int(assumed["table6.data_parallel"])
    return table.assign(micro_batches=table["global_batch"] // samples)


@cache
def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / f"{name}.csv")
