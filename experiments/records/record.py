"""A record: one JSON document per cell and attempt, the only thing analysis reads.

The document is described by ``record_schema.json`` beside this file; every write and every
read is checked against it. It is strict JSON: no NaN, no Infinity. Documents of older versions are
read through :mod:`experiments.records.migrate`.
"""

from __future__ import annotations

import hashlib
import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from bitpipe.origin import Origin

SCHEMA = 3
SCHEMA_FILE = Path(__file__).with_name("record_schema.json")


class Status(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    OOM = "oom"  # does not fit into the device's memory: a result, not an error
    INVALID = "invalid"  # the combination cannot exist; kept where an experiment asks for it
    FAILED = "failed"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"


FINISHED = frozenset({Status.OK, Status.OOM})
"""Statuses that a second run of the same cell would only repeat."""

SHOWN = FINISHED | {Status.INVALID}
"""What a table may show as an outcome. An ``invalid`` attempt is run again all the same, unless the
sweep itself refuses the cell: what was missing when it ran (a schedule's file) may be there now."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why an attempt did not end ``ok``: the first cause, not a neighbour's cascade.

    Attributes:
        kind: ``exception``, ``signal``, ``watchdog``, ``memory``, ``input``, ``slurm``, …
        message: one line.
        rank: global rank that failed first, None where no rank is to blame.
        traceback: its Python traceback, if there is one.
        signal: name of the signal that ended it, as ``SIGKILL``.
    """

    kind: str
    message: str
    rank: int | None = None
    traceback: str | None = None
    signal: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Cause:
        """An exception that this process caught."""
        text = str(error).strip().splitlines()
        return cls(
            kind="exception",
            message=f"{type(error).__name__}: {text[0] if text else ''}",
            traceback="".join(traceback.format_exception(error)),
        )


@dataclass(frozen=True, kw_only=True)
class Record:
    """What came out of one attempt at one cell.

    Attributes:
        cell: the cell's id.
        attempt: from 1; measurements of two attempts are never stitched together.
        status: how it ended.
        origin: where the numbers in ``metrics`` and ``devices`` come from.
        experiment: the sweep that ran it (others may share the cell; see the manifests).
        identity: :meth:`experiments.cell.Cell.identity`.
        labels: what that experiment calls the cell.
        metrics: scalars and per-iteration lists, units in the names (``samples_per_s``,
            ``iteration_seconds``, …, ``iterations_seconds`` with one entry per iteration).
        devices: one list per name, one entry per global rank (``peak_memory_bytes``, …).
        provenance: backend, clock, code, versions, hardware, hosts, seeds, calibration.
        costs: virtual runs: what each operation counted, and how often and how evenly it was measured.
        cause: why, unless ``ok``.
        timeline: file name of one iteration's timeline in the attempt's folder, or None.
        wandb: what became of the wandb run.
        started, finished: ISO 8601, UTC.
    """

    cell: str
    attempt: int
    status: Status
    origin: Origin
    experiment: str
    identity: Mapping[str, Any]
    labels: Mapping[str, Any]
    provenance: Mapping[str, Any]
    started: str
    finished: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    costs: Sequence[Mapping[str, Any]] = ()
    cause: Cause | None = None
    timeline: str | None = None
    wandb: Mapping[str, Any] = field(default_factory=lambda: {"state": "off"})
    schema: int = SCHEMA

    def document(self) -> dict[str, Any]:
        """The JSON document, checked against the schema; not-finite numbers become null.

        Raises:
            RecordError: it does not fit the schema.
        """
        document: dict[str, Any] = plain(asdict(self))
        document["seal"] = seal(document)
        check(document)
        return document

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Record:
        """Read a document back.

        Raises:
            RecordError: it does not fit the schema of this version, or was changed after it was written.
        """
        check(document)
        values = {f.name: document[f.name] for f in fields(cls)}
        values["status"] = Status(values["status"])
        values["origin"] = Origin(values["origin"])
        values["cause"] = Cause(**values["cause"]) if values["cause"] else None
        return cls(**values)


class RecordError(ValueError):
    """A document that is not a record of this version."""


def seal(document: Mapping[str, Any]) -> str:
    """Hash of all that a document says but the seal: against accidents, not against forgers."""
    content = {key: value for key, value in document.items() if key != "seal"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check(document: Mapping[str, Any]) -> None:
    """Check a document against the schema and against its own seal.

    Raises:
        RecordError: names the offending place.
    """
    if document.get("schema") != SCHEMA:
        raise RecordError(f"record schema {document.get('schema')}, this version reads {SCHEMA}")
    error = next(_validator().iter_errors(document), None)
    if error is not None:
        raise RecordError(f"record {error.json_path}: {error.message[:300]}")
    if document["seal"] not in (None, seal(document)):
        raise RecordError("record $.seal: the record was changed after it was written")


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


def plain(value: Any) -> Any:
    """``value`` as strict JSON data: tuples become lists, not-finite floats become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, (str, int)):
        return value
    if hasattr(value, "item"):  # a numpy or torch scalar
        return plain(value.item())
    return str(value)
