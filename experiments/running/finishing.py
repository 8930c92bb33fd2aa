"""A finished attempt: its record, and wandb's copy of it."""

from __future__ import annotations

from dataclasses import replace

from experiments.composing.settings import WandbSettings
from experiments.records.rank_rows import reduced_rows
from experiments.records.record import Record
from experiments.records.store import Store
from experiments.records.wandb_sink import publish


def finish(record: Record, store: Store, wandb: WandbSettings) -> Record:
    """Write the record, then wandb's copy, then the record with what became of the copy."""
    if wandb.mode != "disabled":
        store.write(replace(record, wandb={"state": "pending"}))
        folder = store.attempt(record.cell, record.attempt)
        record = replace(record, wandb=publish(record, reduced_rows(folder), folder, wandb))
    store.write(record)
    return record
