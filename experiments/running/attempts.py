"""The attempts at a block's cells on ranks, and which of them have ended."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bitpipe.runtime.processes.failure import RankFailure
from bitpipe.runtime.result import Cause as RunCause
from bitpipe.runtime.result import RunResult
from experiments.cell import Cell
from experiments.records.record import Cause, Record, Status
from experiments.records.store import Store
from experiments.running.attempt import begin, end
from experiments.running.block import Block
from experiments.running.finishing import finish


class Attempts:
    """One attempt per cell of a block; each record is written once, as soon as its cell has ended.

    Attributes:
        records: by cell id.
        ended: ids of the cells whose record is final.
        measurement: names what these cells have in common; only cells with one name can be paired.
    """

    def __init__(self, block: Block, report: Callable[[Record, str], None]) -> None:
        self.block, self.report = block, report
        self.store = Store(block.settings.results)
        self.records = {cell.id: begin(cell, block, self.store.claim(cell.id)) for cell in block.cells}
        self.ended: set[str] = set()
        self.measurement = secrets.token_hex(6)

    @property
    def left(self) -> list[Cell]:
        """Cells whose attempt has not ended, in order."""
        return [cell for cell in self.block.cells if cell.id not in self.ended]

    def folder(self, cell: Cell) -> Path:
        return self.store.attempt(cell.id, self.records[cell.id].attempt)

    def in_rotation(self, run: Callable[[Sequence[Cell]], Sequence[RunResult]]) -> dict[str, list[RunResult]]:
        """Run the cells as often as the settings ask, every second time in reversed order.

        A cell that fails has ended; what its earlier repeats measured is left out.
        """
        found: dict[str, list[RunResult]] = {cell.id: [] for cell in self.block.cells}
        for number in range(self.block.settings.repeats):
            cells = self.left[:: -1 if number % 2 else 1]
            if not cells:
                break
            for cell, result in zip(cells, run(cells), strict=True):
                found[cell.id].append(result)
                if result.status != "ok":
                    self.broken(cell, result)
        return {cell.id: found[cell.id] for cell in self.left}

    def broken(self, cell: Cell, result: RunResult, **changes: Any) -> None:
        """End the attempt of a cell whose ranks failed."""
        assert result.cause is not None
        self.finish(cell, status=Status(result.status), cause=cause_of(result.cause), **changes)

    def failed(self, runs: Sequence[Any], failure: RankFailure) -> None:
        """Write the record of a job that failed just now."""
        if failure.cause.kind == "timeout" or not 0 <= failure.job < len(runs):
            return  # everyone's or nobody's: the results will say
        for cell in self.block.cells:
            if runs[failure.job].out == self.folder(cell):
                self.finish(cell, status=Status(failure.status), cause=cause_of(failure.cause))

    def cancelled(self, signal: str) -> None:
        """Say of every unfinished attempt that somebody stopped it; wandb hears nothing of it."""
        cause = Cause(kind="signal", message="interrupted", signal=signal)
        for cell in self.left:
            self.store.write(end(self.records[cell.id], status=Status.CANCELLED, cause=cause))

    def all_failed(self, cause: Cause, status: Status = Status.FAILED) -> None:
        for cell in self.block.cells:
            self.finish(cell, status=status, cause=cause)

    def finish(self, cell: Cell, **changes: Any) -> None:
        """End an attempt: write its record, and wandb's copy, once."""
        if cell.id in self.ended:
            return
        self.ended.add(cell.id)
        record = finish(end(self.records[cell.id], **changes), self.store, self.block.settings.wandb)
        self.records[cell.id] = record
        self.report(record, str(cell))


def cause_of(cause: RunCause) -> Cause:
    """A run's cause as a record has it."""
    return Cause(
        kind=cause.kind,
        message=cause.message,
        rank=cause.rank,
        traceback=cause.traceback,
        signal=cause.signal,
    )
