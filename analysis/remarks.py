"""What a reader must know about a set of rows before comparing them."""

from __future__ import annotations

import pandas as pd

from bitpipe.words import counted, part

# What no experiment varies: cells of one model in one table should share it.
SHARED = ("precision", "learning_rate", "clip_norm", "seed", "data", "links", "iterations", "measured")


def remarks(rows: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on cells that did not end ok, mixed or dirty revisions, and unequal settings."""
    found = []
    for status, group in rows[rows["status"] != "ok"].groupby("status"):
        reasons = group["reason"].dropna().unique()
        why = f": {reasons[0]}" + (" …" if len(reasons) > 1 else "") if len(reasons) else ""
        found.append(f"{part(len(group), len(rows), 'cell')} {status}{why}")
    if "not_shown" in rows:
        told = rows[["origin", "not_shown"]].dropna().drop_duplicates()
        found += [
            f"{one['origin']}: one more setting was swept: {one['not_shown']}; "
            "the same command with one value alone shows it"
            for one in told.to_dict("records")
        ]
    for origin, group in rows.groupby("origin"):
        revisions = sorted(group["revision"].dropna().unique())
        if len(revisions) > 1:
            short = ", ".join(name[:10] for name in revisions)
            found.append(f"{origin}: cells of {len(revisions)} revisions ({short})")
        dirty = int(group["dirty"].fillna(False).sum())
        if dirty:
            found.append(
                f"{origin}: {dirty} of {counted(len(group), 'cell')} ran from a working tree with changes"
            )
        for (name,), same in group.groupby(["model"]):
            differ = [key for key in SHARED if same[key].dropna().nunique() > 1]
            if differ:
                found.append(f"{origin}: cells of {name} differ in {', '.join(differ)}")
    return tuple(found)
