"""Writes wandb's offline files as wandb frames them, for tests that need many or broken ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from wandb.proto import wandb_internal_pb2

from analysis.load.wandb_log import BLOCK, FIRST, FULL, HEADER, LAST, MAGIC, MIDDLE


def framed(payloads: Iterable[bytes]) -> bytes:
    """A whole file of these records."""
    out = bytearray(MAGIC)
    for payload in payloads:
        begun = False
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < HEADER.size:
                out += bytes(left)
                left = BLOCK
            part, payload = payload[: left - HEADER.size], payload[left - HEADER.size :]
            kind = (MIDDLE if payload else LAST) if begun else (FIRST if payload else FULL)
            out += HEADER.pack(zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            begun = True
            if not payload:
                break
    return bytes(out)


def run_file(
    id: str,
    rows: Iterable[Mapping[str, Any]] = (),
    *,
    config: Mapping[str, Any] | None = None,
    summary: Mapping[str, Any] | None = None,
    exit_code: int | None = 0,
) -> bytes:
    """A run with a history row per entry of ``rows``; ``exit_code=None`` leaves no exit record."""
    payloads = []
    record = _message()
    record.run.run_id = id
    for key, value in (config or {"cell": id}).items():
        _item(record.run.config.update.add(), key, value)
    payloads.append(record.SerializeToString())
    for step, row in enumerate(rows):
        record = _message()
        record.history.step.num = step
        for key, value in {"_step": step, **row}.items():
            _item(record.history.item.add(), key, value)
        payloads.append(record.SerializeToString())
    record = _message()
    for key, value in (summary or {}).items():
        _item(record.summary.update.add(), key, value)
    payloads.append(record.SerializeToString())
    if exit_code is not None:
        record = _message()
        record.exit.exit_code = exit_code
        payloads.append(record.SerializeToString())
    return framed(payloads)


def _message() -> Any:
    return wandb_internal_pb2.Record()  # type: ignore[attr-defined]


def _item(item: Any, key: str, value: Any) -> None:
    item.nested_key.extend(key.split("."))
    item.value_json = json.dumps(value)
