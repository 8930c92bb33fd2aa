"""The planner's answer, as a terminal shows it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest
from rich.console import Console

from analysis.artefacts import plan as module
from analysis.artefacts.plan import SHOWN, plan
from analysis.drawing.output import Table
from analysis.drawing.render import _printed
from analysis.load.results import Results
from bitpipe.schedule import METHODS

GIB = 2**30


def results(count: int, status: str = "ok") -> Results:
    """As many cells as given, of every kind of choice, with the longest values that occur."""

    def rows() -> Iterator[dict[str, object]]:
        for place in range(count):
            early, cap = place % 3 == 0, 1024 if place % 3 == 1 else None
            yield {
                "method": "bitpipe" if place % 2 == 0 else "chimera",
                "origin": "simulated",
                "early_forward": early,
                "cap": cap,
                "width": 128,
                "depth": 128,
                "micro_batch_size": 64,
                "micro_batches": 1024,
                "chunks": 16 if place % 4 == 2 else None,
                "samples_per_s": 12345.678 + place,
                "bubble_ratio": 0.22222,
                "peak_memory_bytes": 123.4 * GIB,
                "status": status,
                "calibration": "full_cells_two_nodes",
                "calibrated": True,
                "reason": "",
                "model": "gpt_96",
                "cluster": "h100",
                "cell": f"{place:012}",
            }

    frame = pd.DataFrame(list(rows())).astype({"cap": "Int64", "chunks": "Int64"})
    return cast(Results, SimpleNamespace(experiment=lambda id: frame))


@pytest.fixture(autouse=True)
def _no_remarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "remarks", lambda rows: ())


def best(made: Results) -> Table:
    return next(table for table in plan(made).tables if table.name == "plan_best")


def shown(table: Table) -> list[str]:
    """What a terminal of 100 columns shows."""
    console = Console(width=100, file=io.StringIO())
    for part in _printed(table, console.width):
        console.print(part, highlight=False, markup=False)
    return cast(io.StringIO, console.file).getvalue().splitlines()


def test_the_best_choices_are_shown_in_100_columns_a_line_each() -> None:
    table = best(results(30))
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown(table) if "│" in line]
    assert len(lines) == SHOWN == 12
    assert [line[0] for line in lines] == table.frame["choice"].tolist()
    assert [float(line[-3]) for line in lines] == sorted((float(line[-3]) for line in lines), reverse=True)
    assert lines[0][1:5] == ["128", "128", "64", "1024"]
    assert lines[0][-2:] == ["123.4", "22.2 %"]
    assert max(map(len, shown(table))) <= 100


def test_v_is_the_methods_own_where_none_was_asked_for() -> None:
    rows = [line.split("│") for line in shown(best(results(1))) if "│" in line]
    assert rows[0][6].strip() == str(METHODS["bitpipe"].chunks)


def test_nothing_that_fits_is_said() -> None:
    assert shown(best(results(3, "oom")))[-1] == "No choice fits."
