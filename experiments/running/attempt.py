"""The record of an attempt: begun, then ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bitpipe.traffic import Traffic
from experiments.cell import Cell
from experiments.records.provenance import provenance
from experiments.records.record import Cause, Record, Status
from experiments.running.block import Block


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


def traffic_metrics(found: Iterable[Traffic]) -> dict[str, dict[str, float]]:
    """What an iteration puts on the links, as metrics: names are ``kind/link class``."""
    counted = {f"{one.kind}/{one.link}": one for one in found}
    return {
        "traffic_bytes": {name: one.bytes for name, one in counted.items()},
        "traffic_messages": {name: one.messages for name, one in counted.items()},
    }
