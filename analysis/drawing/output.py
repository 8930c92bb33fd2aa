"""What a table or figure function returns, and how it is written below ``results/``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.comparing.grid import Block, Grid, entries, to_latex, to_markdown
from analysis.drawing.style import save
from bitpipe.files import replacing


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table twice: tidy for programs, laid out for people.

    Attributes:
        name: file name without suffix.
        title: one line.
        frame: tidy; numbers carry their unit in the column's name and their origin in a
            column ``origin``.
        grid: the layout in print; None prints the frame as it is.
    """

    name: str
    title: str
    frame: pd.DataFrame
    grid: Grid | None = None

    @property
    def printed(self) -> Grid:
        """The layout in print."""
        return self.grid or plain_grid(self.frame)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure (matplotlib) with its file name, title and a sentence for who cannot see it."""

    name: str
    title: str
    figure: Figure
    alt: str


@dataclass(frozen=True, kw_only=True)
class Interactive:
    """An interactive drawing for the report: one HTML fragment without external parts."""

    title: str
    html: str


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """All that one id gives; ``notes`` are sentences that a reader needs."""

    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    interactive: tuple[Interactive, ...] = ()
    notes: tuple[str, ...] = field(default=())


def plain_grid(frame: pd.DataFrame, digits: int = 4) -> Grid:
    """A frame as one block; numbers with ``digits`` significant digits, missing as –."""
    numbers = [dtype.kind in "fiu" for dtype in frame.dtypes]
    words = [place for place, number in enumerate(numbers) if not number]
    rows = tuple(entries([_show(value, digits) for value in row]) for row in frame.itertuples(index=False))
    header = tuple(str(column) for column in frame.columns)
    return Grid(header=header, blocks=(Block(title="", rows=rows),), text_columns=1 + max(words, default=0))


def _show(value: object, digits: int) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def write(rendered: Rendered, root: Path) -> list[Path]:
    """Write every table (CSV, Markdown, LaTeX) and picture (PDF, PNG, SVG) below ``root``.

    Files are written beside their place and moved there, so that a reader never sees half a
    file; equal content gives equal bytes.
    """
    return [*_write_tables(rendered.tables, root / "tables"), *_write_pictures(rendered, root / "figures")]


def _write_tables(tables: Sequence[Table], folder: Path) -> Iterator[Path]:
    for table in tables:
        yield write_text(folder / f"{table.name}.csv", table.frame.to_csv(index=False, lineterminator="\n"))
        heading = f"# {table.title}\n\n"
        yield write_text(folder / f"{table.name}.md", heading + to_markdown(table.printed))
        yield write_text(folder / f"{table.name}.tex", f"% {table.title}\n" + to_latex(table.printed))


def _write_pictures(rendered: Rendered, folder: Path) -> Iterator[Path]:
    for picture in rendered.pictures:
        folder.mkdir(parents=True, exist_ok=True)
        yield from save(picture.figure, folder / picture.name)


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically; makes its folder."""
    with replacing(path) as half:
        half.write_text(text, encoding="utf-8")
    return path
