"""Text from outside is text: no library takes it for markup or mathematics."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from result_folders import VARIANTS, Folder, make_cell, make_record
from rich.console import Console

from analysis.__main__ import main
from analysis.comparing.grid import Block, Grid, entries, to_html, to_latex, to_markdown, to_terminal
from analysis.drawing.style import figure, save, style
from experiments.records.record import Cause, Status

HOSTILE = [
    "[/red] not [bold]", "[/]", "$x_{", r"$\frac$", "a|b", "<script>alert(1)</script>",
    "*x* `y`", "50% of #1 & ~{2}_^\\", "two\nlines",
]  # fmt: skip


def grid(text: str) -> Grid:
    block = Block(title=text, rows=(entries([text, text]),))
    return Grid(header=(text, "x"), blocks=(block,), notes=(text,))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_shows_text_as_it_is(text: str) -> None:
    words = text.split()[0]
    terminal = Console(width=200, file=io.StringIO())
    for part in to_terminal(grid(text), text):
        terminal.print(part, highlight=False, markup=False)
    assert terminal.file.getvalue().count(words) >= 5  # type: ignore[attr-defined]
    markdown = to_markdown(grid(text)).splitlines()
    rows = [line.replace(r"\|", "") for line in markdown if line.startswith("|")]
    assert len(rows) == 4  # header, rule, the block's title, one row
    assert {row.count("|") for row in rows} == {3}
    assert "<script" not in "".join(rows) + to_html(grid(text), text)
    assert len(to_latex(grid(text)).splitlines()) == 9


@pytest.mark.parametrize("text", HOSTILE)
def test_a_picture_shows_text_as_it_is(tmp_path: Path, text: str) -> None:
    with style():
        canvas = figure(3, 2)
        axes = canvas.subplots()
        axes.plot([0, 1], [0, 1], label=text)
        axes.set_title(text)
        axes.set_xticks([0], [text])
        axes.legend()
    assert len(save(canvas, tmp_path / "x")) == 3


def test_a_drawing_of_a_schedule_does_so_too() -> None:
    from bitpipe.draw.sheet import STYLE, text_width

    assert STYLE["text.parse_math"] is False
    assert text_width("$x_{", 8) > 0


def test_status_shows_a_cause_with_brackets() -> None:
    from slurm.show import table

    told = {"cell": "0" * 12, "name": "[/x] D=4", "job": "1", "state": "failed", "attempt": 1}
    state = SimpleNamespace(**told, note="closing tag '[/red]' doesn't match [1-3]", waiting=False)
    terminal = Console(width=200, file=io.StringIO())
    terminal.print(table(SimpleNamespace(name="[bold]"), [state]))  # type: ignore[arg-type, list-item]
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "[/red]" in shown
    assert "[bold]" in shown
    assert "[/x]" in shown


def test_a_folder_and_a_cause_with_markup_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path / "a $x_{ [b] folder")
    cells = [make_cell(variant=name) for name in VARIANTS]
    folder.add(*(make_record(cell, 20.0) for cell in cells[1:]))
    failed = make_record(cells[0], status=Status.FAILED)
    folder.add(replace(failed, cause=Cause(kind="error", message="[/red] $x_{ <b>")))
    folder.sweep("table6_ablation", cells)
    assert main(["table6_ablation", "--results", str(folder.root)]) == 0
    assert "[/red] $x_{ <b>" in capsys.readouterr().out
