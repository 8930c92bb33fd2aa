"""The record of an attempt: begun, then ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from experiments.block import Block
from experiments.cell import Cell
from experiments.provenance import provenance
from experiments.record import Cause, Record, Status


def begin(cell: Cell, block: Block, attempt: int) -> Record:
    """A record of an attempt that starts now; its status says failed until :func:`end`."""
    now = datetime.now(UTC).isoformat()
    return Record(
        cell=cell.id,
        attempt=attempt,
        status=Status.FAILED,
        origin=cell.origin,
        experiment=block.experiment,
        identity=cell.identity(),
        labels=cell.labels,
        provenance=provenance(cell, block.settings.launcher),
        started=now,
        finished=now,
        cause=Cause(kind="unfinished", message="the attempt did not end"),
    )


def end(record: Record, **changes: Any) -> Record:
    """The record of the same attempt, ended now."""
    return replace(record, finished=datetime.now(UTC).isoformat(), **changes)
