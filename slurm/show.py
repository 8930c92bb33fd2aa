"""What a sweep looks like on a terminal: a table, logs, a summary."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from bitpipe.errors import InputError
from experiments.records.record import FINISHED
from slurm.folder import SweepFolder
from slurm.settle import ONLY, CellState, look
from slurm.watch import summary

STYLES = {"ok": "green", "oom": "yellow", "running": "cyan", "pending": "dim", "invalid": "yellow"}


def table(folder: SweepFolder, states: Sequence[CellState]) -> Table:
    """One row per cell, the summary below."""
    # Texts, not strings: in a string square brackets are markup.
    title, caption = Text(folder.name, style="table.title"), Text(summary(states), style="table.caption")
    shown = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in ("cell", "what", "job", "state", "attempt", "note"):
        shown.add_column(column, overflow="fold")
    for state in states:
        style = STYLES.get(state.state, "red")
        attempt = str(state.attempt) if state.attempt else ""
        note = state.note if state.note != "None" else ""
        told = Text(state.state, style=style)
        row = (state.cell, state.name, state.job or "", told, attempt, note)
        shown.add_row(*(Text(str(one)) if one is not told else told for one in row))
    return shown


def report(folder: SweepFolder, states: Sequence[CellState]) -> int:
    """Counts, then every cell without a result and why; 0 if there is none."""
    counts = Counter(state.state for state in states)
    print(f"{folder.name}: {', '.join(f'{count} {state}' for state, count in counts.items())}")
    without = [state for state in states if state.state not in {str(status) for status in FINISHED}]
    for state in without:
        print(f"  {state.cell} {state.name} (job {state.job}): {state.state}: {state.note}")
    lost = [state for state in without if not state.waiting and state.state != "held"]
    if lost:
        states_of = {state.state for state in lost}
        only = ",".join(_covering(states_of))
        print(f"run them again: python -m slurm requeue {folder.arguments} --only {only}")
    return 1 if without else 0


def _covering(states: set[str]) -> list[str]:
    """Names for ``--only`` that stand for all of these states, none twice."""
    names = []
    for name, members in ONLY.items():
        if members & states:
            names.append(name)
            states = states - members
    return names


def one_cell(folder: SweepFolder, start: str) -> str:
    """The cell whose id starts so.

    Raises:
        InputError: none does, or several.
    """
    found = [id for id in folder.names if id.startswith(start)]
    if len(found) == 1:
        return found[0]
    some = ", ".join((found or list(folder.names))[:4])
    raise InputError("cell", start, f"{len(found)} cells of {folder.name} start so", f"there are {some}, …")


def print_logs(folder: SweepFolder, start: str, rank: int | None, follow: bool) -> int:
    """Print a cell's logs: the job's own, then those of its ranks."""
    cell = one_cell(folder, start)
    read: dict[Path, int] = {}
    found = _print_new(folder, cell, rank, read)
    while follow and next(state for state in look(folder) if state.cell == cell).waiting:
        time.sleep(1)
        found |= _print_new(folder, cell, rank, read)
    if not found:
        print("no log yet", file=sys.stderr)
    return 0


def _print_new(folder: SweepFolder, cell: str, rank: int | None, read: dict[Path, int]) -> bool:
    """Print what was added to the logs since the last time."""
    jobs = [job.job for job in folder.jobs() if job.kind == "block" and cell in job.cells]
    if not jobs:
        return False
    paths = [folder.jobs_folder / f"{jobs[-1]}_0_log.{end}" for end in ("out", "err")] if rank is None else []
    paths += sorted(folder.job(jobs[-1]).glob(f"rank{'*' if rank is None else rank}/*.txt"))
    for path in paths:
        text = path.read_text(errors="replace") if path.exists() else ""
        new = text[read.get(path, 0) :]
        read[path] = len(text)
        if new:
            print(
                f"==> {path.relative_to(folder.path)}\n{new}",
                end="" if new.endswith("\n") else "\n",
                flush=True,
            )
    return any(read.values())
