"""Draw artefacts, write them below a results folder, and say what was made."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, RenderableType

from analysis.claims import rendered as claims_of
from analysis.comparing.compare import Comparison, table
from analysis.comparing.grid import to_terminal, width
from analysis.drawing.output import Rendered, Table, write, write_text
from analysis.load.results import Results
from analysis.registry import Artefact, artefacts
from analysis.report import write_report
from bitpipe.errors import InputError

# A tidy table without a layout of its own that has more rows, or is wider than the terminal, is
# written, not printed.
LONG = 12
FEW = 5


def render_one(artefact: Artefact, results: Results) -> int:
    """Draw one artefact and print its tables; 0 if it was drawn.

    Raises:
        NoResults: its records are not there.
    """
    _draw(artefact, results, _console(), verbose=True)
    _name_problems(results)
    return 0


def every(results: Results) -> int:
    """Draw all, check the claims, write the report; those without records are named.

    Returns:
        0 if at least one was drawn and none is at fault, else 1.
    """
    console = _console()
    faults = 0
    drawn: dict[str, Rendered] = {}
    for artefact in artefacts().values():
        try:
            drawn[artefact.id] = _draw(artefact, results, console, verbose=False)
        except InputError as error:
            console.print(f"{artefact.id}: {error}", highlight=False, markup=False)
        except Exception:  # the others are still worth having
            faults += 1
            print(f"{artefact.id}: not drawn, a fault of this program", file=sys.stderr)
            traceback.print_exc()
    if drawn:
        drawn["claims"] = claims_of(results)
        _show("claims", drawn["claims"], results, console, verbose=False)
        if not results.cells.empty:
            written = write_report(results, drawn)
            console.print(f"report: {written}", highlight=False, markup=False, soft_wrap=True)
    _name_problems(results)
    return 0 if drawn and not faults else 1


def claims(results: Results) -> int:
    """Check every claim, print a line each, and write the findings."""
    _show("claims", claims_of(results), results, _console(), verbose=True)
    _name_problems(results)
    return 0


def comparison(found: Comparison, root: Path) -> int:
    """Print a comparison and write it below ``root``; 1 if B is slower than A beyond noise, or broken."""
    console = _console()
    made = table(found)
    for part in to_terminal(made.printed, made.title):
        console.print(part, highlight=False, markup=False)
    _name_files("compare", write(Rendered(tables=(made,)), root), console)
    if found.pairs.empty:
        print("compare: no pairs; --by method or --by cluster pairs cells that differ", file=sys.stderr)
        return 2
    console.print(f"{found.worse} of {len(found.pairs)} pairs are slower or broken", highlight=False)
    return 1 if found.worse else 0


def _name_problems(results: Results) -> None:
    """Name what was left out: the first few on the terminal, all of it in a file."""
    problems = results.loaded.problems
    if problems.empty:
        return
    lines = [f"left out: {row.path}: {row.problem}" for row in problems.head(FEW).itertuples()]
    path = write_text(results.root / "tables" / "left_out.csv", problems.to_csv(index=False))
    lines.append(f"{len(problems)} losses in all, listed in {path}")
    print("\n".join(lines), file=sys.stderr)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _draw(artefact: Artefact, results: Results, console: Console, *, verbose: bool) -> Rendered:
    rendered = artefact.draw(results)
    _show(artefact.id, rendered, results, console, verbose=verbose)
    return rendered


def _show(id: str, rendered: Rendered, results: Results, console: Console, *, verbose: bool) -> None:
    if verbose:
        for table in rendered.tables:
            for part in _printed(table, console.width):
                console.print(part, highlight=False, markup=False)
        for note in rendered.notes:
            console.print(note, highlight=False, markup=False)
    _name_files(id, write(rendered, results.root), console)


def _printed(table: Table, most: int) -> Iterator[RenderableType]:
    """A table for a terminal of ``most`` columns, or what it would hold."""
    grid = table.printed
    if table.grid is None and (len(table.frame) > LONG or width(grid) > most):
        yield f"{table.title}: {len(table.frame)} rows, in the files below"
    else:
        yield from to_terminal(grid, table.title)


def _name_files(id: str, paths: Sequence[Path], console: Console) -> None:
    """A line for each table and picture, however many formats it has."""
    formats: dict[Path, list[str]] = {}
    for path in paths:
        formats.setdefault(path.with_suffix(""), []).append(path.suffix[1:])
    for stem, suffixes in formats.items():
        line = f"{id}: {stem}.{{{','.join(suffixes)}}}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
