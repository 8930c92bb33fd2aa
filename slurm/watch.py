"""Following a sweep: one line per cell that ends, one when the queue changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from experiments.records.record_line import outcome_of
from experiments.records.store import Store
from slurm.folder import SweepFolder
from slurm.settle import CellState, look

POLL_S = 2.0


def follow(
    folder: SweepFolder,
    say: Callable[[str], None],
    *,
    cells: Collection[str] | None = None,
    poll: float = POLL_S,
) -> list[CellState]:
    """Wait until no cell of the sweep, or none of these, can change any more; returns the last states."""
    store = Store(folder.results)
    seen: set[tuple[str, int]] = set()
    before = ""
    while True:
        states = [state for state in look(folder) if cells is None or state.cell in cells]
        left = sum(state.waiting for state in states)
        for state in states:
            if state.attempt is None or (state.cell, state.attempt) in seen:
                continue
            record = store.read(state.cell, state.attempt)
            if record is not None and state.state != "running":
                seen.add((state.cell, state.attempt))
                count = f"[{len(states) - left}/{len(states)}]"
                say(f"{count} {record.status:<6} {state.name} (job {state.job}): {outcome_of(record)}")
        now = summary(states)
        if left and now != before:
            say(f"  {now}")
        if not left:
            return states
        before = now
        time.sleep(poll)


def summary(states: Iterable[CellState]) -> str:
    """Counts per state, and why cells wait."""
    every = list(states)
    counts = Counter(state.state for state in every)
    text = ", ".join(f"{count} {state}" for state, count in counts.items())
    reasons = {state.note for state in every if state.state == "pending"} - {"", "None"}
    return f"{text} ({', '.join(sorted(reasons))})" if reasons else text
