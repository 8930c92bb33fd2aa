"""Draw artefacts, write them below a results folder, and say what was made."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from analysis.grid import to_terminal
from analysis.output import write
from analysis.registry import Artefact, artefacts
from analysis.results import NoResults, Results

# A tidy table without a layout of its own that is longer than this is written, not printed.
LONG = 40


def one(artefact: Artefact, root: Path) -> int:
    """Draw one artefact and print its tables; 0 if it was drawn.

    Raises:
        NoResults: its records are not there.
    """
    results = Results(root)
    _draw(artefact, results, _console(), verbose=True)
    return 0


def every(root: Path) -> int:
    """Draw all; artefacts without records are named. 0 if at least one was drawn."""
    results = Results(root)
    console = _console()
    drawn = 0
    for artefact in artefacts().values():
        try:
            _draw(artefact, results, console, verbose=False)
            drawn += 1
        except NoResults as error:
            console.print(f"{artefact.id}: {error}", highlight=False, markup=False)
    return 0 if drawn else 1


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _draw(artefact: Artefact, results: Results, console: Console, *, verbose: bool) -> None:
    rendered = artefact.draw(results)
    if verbose:
        for table in rendered.tables:
            if table.grid is None and len(table.frame) > LONG:
                continue
            for part in to_terminal(table.printed, table.title):
                console.print(part, highlight=False, markup=False)
        for note in rendered.notes:
            console.print(note, highlight=False, markup=False)
    for path in write(rendered, results.root):
        console.print(f"{artefact.id}: {path}", highlight=False, markup=False, soft_wrap=True)
