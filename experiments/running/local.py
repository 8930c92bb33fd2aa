"""Runs a sweep on this machine, block after block, with progress and one summary."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bitpipe.words import counted
from experiments.composing.sweep import Sweep
from experiments.records.manifest import write_manifest
from experiments.records.record import Record
from experiments.records.record_line import line_of
from experiments.running.block import Block
from experiments.running.dry_run import describe
from experiments.running.execute import record_refusals, run_block
from experiments.running.outcome import report
from experiments.running.skip import pending


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
    progress = Progress(blocks)
    for block in blocks:
        progress.started(block)
        run_block(block, progress.finished)
    report(sweep, progress.attempts)


def say(line: str) -> None:
    """One line of progress."""
    print(line, flush=True)


class Progress:
    """A line when a block of ranks starts, and one per finished cell."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks, self.cells = len(blocks), sum(len(block.cells) for block in blocks)
        self.begun, self.done = 0, 0
        self.attempts = {cell.id: 0 for block in blocks for cell in block.cells}
        self.start = time.monotonic()

    def started(self, block: Block) -> None:
        self.begun += 1
        if block.backend == "simulate":
            return
        left = (time.monotonic() - self.start) / max(1, self.done) * (self.cells - self.done)
        until = f", about {left:.0f} s left" if self.done else ""
        what = f"{counted(len(block.cells), 'cell')} on {counted(block.ranks, 'rank')}"
        say(f"block {self.begun}/{self.blocks}: {what}{until}")

    def finished(self, record: Record, name: str) -> None:
        self.done += 1
        self.attempts[record.cell] = record.attempt
        say(line_of(record, name, number=self.done, of=self.cells))
