"""A verification as text and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.comparing.verify import NOT_ASKED, TOLERANCES, Item, Verdict
from analysis.drawing.output import write_text


def show(items: Sequence[Item], root: Path, reference: Path) -> int:
    """Print what was found, write every item to ``tables/verify.csv``; 0 if all agree, else 1.

    Points that were never asked for are one line per experiment and origin; all else has a line each.
    """
    groups: dict[tuple[str, str], Counter[Verdict]] = {}
    for item in items:
        groups.setdefault((item.point.experiment, item.point.origin), Counter())[item.verdict] += 1
    for (experiment, origin), counts in groups.items():
        said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        print(f"{experiment:28} {origin:10} {said}")
    for origin in dict.fromkeys(origin for _, origin in groups):
        print(f"tolerance, {origin}: {TOLERANCES[origin]}")
    never: Counter[tuple[str, str]] = Counter()
    for item in items:
        if item.detail == NOT_ASKED:
            never[item.point.experiment, item.point.origin] += 1
        elif item.verdict is not Verdict.AGREES:
            print(f"{item.verdict}: {item.point}: {item.detail}")
    for (experiment, origin), count in never.items():
        print(f"{Verdict.MISSING}: {experiment} {origin}: {count} points, {NOT_ASKED}")
    path = write_text(root / "tables" / "verify.csv", frame(items).to_csv(index=False))
    bad = sum(item.verdict is not Verdict.AGREES for item in items)
    if root.resolve() == reference.resolve():
        print(f"{root}: this is the reference itself, which always agrees with itself")
    print(f"{len(items) - bad} of {len(items)} points agree; all are listed in {path}")
    return 1 if bad else 0


def frame(items: Sequence[Item]) -> pd.DataFrame:
    """One row per item."""
    return pd.DataFrame(
        [
            {
                "experiment": item.point.experiment,
                "origin": item.point.origin,
                "point": " ".join(f"{key}={value}" for key, value in item.point.settings.items()),
                "verdict": item.verdict.value,
                "detail": item.detail,
            }
            for item in items
        ]
    )
