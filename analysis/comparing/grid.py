"""A table as printed: blocks of rows under one header, rendered four ways.

The tidy frame of a table is for programs; a :class:`Grid` is the same content laid out for
people, once, and rendered as Markdown, LaTeX (booktabs), HTML and for the terminal.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.table import Table as RichTable
from rich.text import Text as RichText


@dataclass(frozen=True)
class Entry:
    """One entry: its text, and whether it is the best (bold) or second best (underlined) of its row."""

    text: str
    best: bool = False
    second: bool = False


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows under one heading, for instance one origin."""

    title: str
    rows: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Blocks that share one header.

    Attributes:
        header: column headings.
        blocks: in print order.
        notes: sentences below the table.
        text_columns: the first so many columns are left-aligned.
    """

    header: tuple[str, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = field(default=())
    text_columns: int = 1


def entries(values: Sequence[object]) -> tuple[Entry, ...]:
    """Plain entries."""
    return tuple(Entry(str(value)) for value in values)


def rank(values: Sequence[float | None], digits: int) -> tuple[Entry, ...]:
    """Entries of one row with the best bold and the second underlined, ties alike.

    Ties are decided on what is printed: two values that print alike are marked alike.
    """
    shown = ["–" if value is None else f"{value:.{digits}f}" for value in values]
    places = sorted({float(text) for text in shown if text != "–"}, reverse=True)
    best = places[0] if places else None
    second = places[1] if len(places) > 1 else None
    return tuple(
        Entry(text, text != "–" and float(text) == best, text != "–" and float(text) == second)
        for text in shown
    )


def to_markdown(grid: Grid) -> str:
    """GitHub's Markdown; a block's title is a row of its own when there is more than one block."""

    def line(row: Sequence[Entry]) -> str:
        return "| " + " | ".join(_markdown(entry) for entry in row) + " |"

    align = ["---" if i < grid.text_columns else "---:" for i in range(len(grid.header))]
    lines = [line(entries(grid.header)), "| " + " | ".join(align) + " |"]
    for block in grid.blocks:
        if block.title:
            blank = grid.header[1:]
            lines.append(
                "| " + " | ".join([f"*{_escape_markdown(block.title)}*", *("" for _ in blank)]) + " |"
            )
        lines.extend(line(row) for row in block.rows)
    return "\n".join([*lines, *(f"\n{_one_line(note)}" for note in grid.notes)]) + "\n"


def to_latex(grid: Grid) -> str:
    """A booktabs tabular, to be put into a table environment."""
    width = len(grid.header)
    columns = "l" * grid.text_columns + "r" * (width - grid.text_columns)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines.append(" & ".join(_escape_latex(name) for name in grid.header) + r" \\")
    for block in grid.blocks:
        lines.append(r"\midrule")
        if block.title:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_escape_latex(block.title)}}}}} \\")
        lines.extend(" & ".join(_latex(entry) for entry in row) + r" \\" for row in block.rows)
    lines += [r"\bottomrule", r"\end{tabular}", *(f"% {_one_line(note)}" for note in grid.notes)]
    return "\n".join(lines) + "\n"


def to_html(grid: Grid, caption: str = "") -> str:
    """A table element with header scopes, for the report."""
    kinds = ["" if place < grid.text_columns else ' class="n"' for place in range(len(grid.header))]
    names = zip(kinds, grid.header, strict=True)
    head = "".join(f'<th scope="col"{kind}>{html.escape(name)}</th>' for kind, name in names)
    body = []
    for block in grid.blocks:
        rows = ""
        if block.title:
            rows = (
                f'<tr><th scope="rowgroup" colspan="{len(grid.header)}">{html.escape(block.title)}</th></tr>'
            )
        for row in block.rows:
            cells = zip(kinds, row, strict=True)
            rows += "<tr>" + "".join(f"<td{kind}>{_html(entry)}</td>" for kind, entry in cells) + "</tr>"
        body.append(f"<tbody>{rows}</tbody>")
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in grid.notes)
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    label = html.escape(caption or ", ".join(grid.header), quote=True)
    table = f"<table>{title}<thead><tr>{head}</tr></thead>{''.join(body)}</table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>{notes}'


def to_terminal(grid: Grid, caption: str) -> Iterator[RichTable | str]:
    """For the terminal, by rich: the caption, a table per block, the notes."""
    yield caption
    for block in grid.blocks:
        table = RichTable(
            title=RichText(block.title) if block.title else None, title_justify="left", title_style="italic"
        )
        for place, name in enumerate(grid.header):
            table.add_column(
                RichText(name), justify="left" if place < grid.text_columns else "right", overflow="fold"
            )
        for row in block.rows:
            table.add_row(*(RichText(entry.text, style=_style(entry)) for entry in row))
        yield table
    yield from grid.notes


def width(grid: Grid) -> int:
    """Columns that :func:`to_terminal` needs to print every entry in one line."""
    rows = [grid.header, *((entry.text for entry in row) for block in grid.blocks for row in block.rows)]
    return sum(max(map(len, column)) + 3 for column in zip(*rows, strict=True)) + 1


def _style(entry: Entry) -> str:
    return "bold" if entry.best else "underline" if entry.second else ""


def _markdown(entry: Entry) -> str:
    text = _escape_markdown(entry.text)
    return f"**{text}**" if entry.best else f"<u>{text}</u>" if entry.second else text


def _escape_markdown(text: str) -> str:
    """Text as it is in one cell of a table: no column, emphasis, code or element of HTML begins in it."""
    return re.sub(r"([\\|*`])", r"\\\1", _one_line(text)).replace("<", "&lt;")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _html(entry: Entry) -> str:
    text = html.escape(entry.text)
    return f"<b>{text}</b>" if entry.best else f"<u>{text}</u>" if entry.second else text


def _latex(entry: Entry) -> str:
    text = _escape_latex(entry.text)
    return rf"\textbf{{{text}}}" if entry.best else rf"\underline{{{text}}}" if entry.second else text


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    sign: "\\" + sign for sign in "&%$#_{}"
}
_LATEX |= {"±": r"$\pm$", "×": r"$\times$", "–": "--", "B̂": r"$\hat{B}$", "≥": r"$\geq$", "≤": r"$\leq$"}
_LATEX |= {"θ": r"$\theta$", "−": r"$-$", "²": r"$^2$", "°": r"$^\circ$", "·": r"$\cdot$", "∈": r"$\in$"}


def _escape_latex(text: str) -> str:
    text = _one_line(text).replace("\0", "").replace("B̂", "\0")
    return "".join(_LATEX.get(sign, sign) for sign in text).replace("\0", _LATEX["B̂"])
