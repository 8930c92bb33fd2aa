"""What a reader must know about a set of rows before comparing them."""

from __future__ import annotations

import pandas as pd


def remarks(rows: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on cells that did not end ok, mixed or dirty revisions, and unequal settings."""
    found = []
    for status, group in rows[rows["status"] != "ok"].groupby("status"):
        reasons = group["reason"].dropna().unique()
        why = f": {reasons[0]}" + (" …" if len(reasons) > 1 else "") if len(reasons) else ""
        found.append(f"{len(group)} of {len(rows)} cells are {status}{why}")
    for origin, group in rows.groupby("origin"):
        revisions = sorted(group["revision"].dropna().unique())
        if len(revisions) > 1:
            short = ", ".join(name[:10] for name in revisions)
            found.append(f"{origin}: cells of {len(revisions)} revisions ({short})")
        dirty = int(group["dirty"].fillna(False).sum())
        if dirty:
            found.append(f"{origin}: {dirty} of {len(group)} cells ran from a working tree with changes")
        contexts = group["context"].dropna().nunique()
        if contexts > 1:
            found.append(
                f"{origin}: {contexts} different settings (model, precision, data, calibration, …) in one "
                "table; only rows of equal settings are comparable"
            )
    return tuple(found)
