"""Older records, read as this version's: one step from each version to the next.

Records on disk are never rewritten; whoever reads one calls :func:`migrate` first.

======= ==========================================================================
version what changed
======= ==========================================================================
1       the first
2       ``seal``: a hash of the document's own content, so that a value changed
        after it was written is noticed; null for records older than that
3       ``costs``: what operations count in a virtual run; empty before, when each
        rank counted its own time (metrics ``paces``: in units of a fixed piece of
        work)
======= ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.records.record import SCHEMA, RecordError, seal

Document = dict[str, Any]


def _unsealed(document: Document) -> Document:
    """1 to 2: nobody can say any more what was written then."""
    return {**document, "seal": None}


def _own_time(document: Document) -> Document:
    """2 to 3: no costs were shared."""
    return {**document, "costs": []}


STEPS: Mapping[int, Callable[[Document], Document]] = {1: _unsealed, 2: _own_time}


def migrate(document: Mapping[str, Any]) -> Document:
    """The document in this version's form; one that is already comes back equal.

    Raises:
        RecordError: it has no version, one that no step leads away from, or was changed after it was
            written.
    """
    found: Document = dict(document)
    while (version := found.get("schema")) != SCHEMA:
        if not isinstance(version, int) or version not in STEPS:
            raise RecordError(f"record schema {version}, this version reads {min(STEPS)} to {SCHEMA}")
        if found.get("seal") not in (None, seal(found)):
            raise RecordError("record $.seal: the record was changed after it was written")
        found = {**STEPS[version](found), "schema": version + 1}
        if found["seal"] is not None:
            found["seal"] = seal(found)
    return found
