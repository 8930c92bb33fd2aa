"""Older records, read as this version's: one step from each version to the next.

Records on disk are never rewritten; whoever reads one calls :func:`migrate` first.

======= ==========================================================================
version what changed
======= ==========================================================================
1       the first
2       ``seal``: a hash of the document's own content, so that a value changed
        after it was written is noticed; null for records older than that
======= ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.records.record import SCHEMA, RecordError

Document = dict[str, Any]


def _unsealed(document: Document) -> Document:
    """1 to 2: nobody can say any more what was written then."""
    return {**document, "seal": None}


STEPS: Mapping[int, Callable[[Document], Document]] = {1: _unsealed}


def migrate(document: Mapping[str, Any]) -> Document:
    """The document in this version's form; one that is already comes back equal.

    Raises:
        RecordError: it has no version, or one that no step leads away from.
    """
    found: Document = dict(document)
    while (version := found.get("schema")) != SCHEMA:
        if not isinstance(version, int) or version not in STEPS:
            raise RecordError(f"record schema {version}, this version reads {min(STEPS)} to {SCHEMA}")
        found = {**STEPS[version](found), "schema": version + 1}
    return found
