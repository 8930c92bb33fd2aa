"""Runs a sweep on this machine, block after block, with progress and one summary."""

from __future__ import annotations

import time

from experiments.dry_run import describe
from experiments.execute import record_refusals, run_block
from experiments.manifest import write_manifest
from experiments.outcome import report
from experiments.record import Record, Status
from experiments.skip import pending
from experiments.sweep import Sweep


def run_sweep(sweep: Sweep) -> None:
    """Run every cell that is not finished yet.

    Raises:
        SweepFailed: at the end, if a cell failed; the others were run all the same.
    """
    if sweep.dry_run:
        print(describe(sweep))
        return
    write_manifest(sweep)
    record_refusals(sweep)
    blocks = pending(sweep, say)
    total = sum(len(block.cells) for block in blocks)
    progress = Progress(total)
    for block in blocks:
        run_block(block, progress.finished)
    report(sweep)


def say(line: str) -> None:
    """One line of progress."""
    print(line, flush=True)


class Progress:
    """One line per finished cell: count, status, cell, result, time left."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.begin = total, 0, time.monotonic()

    def finished(self, record: Record, name: str) -> None:
        self.done += 1
        elapsed = time.monotonic() - self.begin
        left = elapsed / self.done * (self.total - self.done)
        until = f", about {left:.0f} s left" if left >= 5 else ""
        width = len(str(self.total))
        say(f"[{self.done:>{width}}/{self.total}] {record.status:<6} {name}: {outcome_of(record)}{until}")


def outcome_of(record: Record) -> str:
    """A record in a few words."""
    if record.status is Status.OK:
        if record.metrics["samples_per_s"] is None:  # a schedule alone has no seconds
            return f"makespan {record.metrics['makespan_units']:g} stage forwards ({record.origin})"
        return f"{record.metrics['samples_per_s']:.2f} samples/s ({record.origin})"
    assert record.cause is not None
    rank = f"rank {record.cause.rank}: " if record.cause.rank is not None else ""
    return rank + record.cause.message
