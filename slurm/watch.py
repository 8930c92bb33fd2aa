"""Following a sweep: one line per cell that ends, one when the queue changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from bitpipe.errors import InputError
from experiments.records.record_line import outcome_of
from experiments.records.store import Store
from slurm import client
from slurm.folder import SweepFolder
from slurm.settle import CellState, Collector

POLL_S = 2.0
PATIENCE_S = 1800.0
"""How long Slurm may be silent before the waiting ends; the jobs go on all the same."""


def follow(
    folder: SweepFolder,
    say: Callable[[str], None],
    *,
    cells: Collection[str] | None = None,
    poll: float = POLL_S,
    patience: float = PATIENCE_S,
) -> list[CellState]:
    """Wait until no cell of the sweep, or none of these, can change by itself; returns the last states.

    Raises:
        InputError: Slurm, or its accounting, did not answer for ``patience`` seconds; says how to go on.
        NotWritten: the file system refuses.
    """
    store, collector = Store(folder.results), Collector(folder)
    seen: set[tuple[str, int]] = set()
    ended: set[str] = set()
    before = ""
    heard = time.monotonic()
    with client.patient(patience, say):
        while True:
            try:
                states = collector.look()
            except client.NoAnswer as error:
                raise _silent(folder, f"{error.value}: {error.allowed}") from error
            states = [state for state in states if cells is None or state.cell in cells]
            for state in states:
                if state.attempt is None or state.state == "running" or (state.cell, state.attempt) in seen:
                    continue
                record = store.read(state.cell, state.attempt)
                if record is not None:
                    seen.add((state.cell, state.attempt))
                    ended |= set() if state.waiting else {state.cell}
                    count = f"[{len(ended)}/{len(states)}]"
                    say(f"{count} {record.status:<6} {state.name} (job {state.job}): {outcome_of(record)}")
            left = [state for state in states if state.waiting or state.due]
            now = summary(states)
            if left and now != before:
                say(f"  {now}")
            if not left:
                return states
            if any(state.state != "unknown" for state in left):
                heard = time.monotonic()
            elif time.monotonic() - heard > patience:
                raise _silent(folder, left[0].note)
            before = now
            time.sleep(poll)


def _silent(folder: SweepFolder, why: str) -> InputError:
    go_on = f"the jobs keep running; go on with: python -m slurm collect {folder.arguments} --wait"
    return InputError("slurm", "no answer", why, go_on)


def summary(states: Iterable[CellState]) -> str:
    """Counts per state, and why cells wait."""
    every = list(states)
    counts = Counter(state.state for state in every)
    text = ", ".join(f"{count} {state}" for state, count in counts.items())
    reasons = {state.note for state in every if state.state in ("pending", "held", "unknown")} - {"", "None"}
    return f"{text} ({'; '.join(sorted(reasons))})" if reasons else text
