"""Bars of throughput."""

from __future__ import annotations

import pandas as pd

from analysis.drawing.bars import Panel, grouped_bars
from analysis.drawing.labels import METHODS


def test_a_method_without_a_look_of_its_own_is_drawn_under_its_name() -> None:
    rows = pd.DataFrame({"method": ["dapple", "my_method"], "samples_per_s": [1.0, 2.0]})
    rows = rows.assign(depth=4, status="ok")
    panel = Panel(title="", rows=rows, point="depth")
    figure = grouped_bars(
        [panel], METHODS, series="method", value="samples_per_s", ylabel="samples/s", xlabel="D"
    )
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["DAPPLE", "my_method"]
    assert len(figure.axes[0].containers) == 2


def test_panels_of_one_group_share_their_y_range_and_no_others() -> None:
    panels = []
    for group, value in (("bert", 1.0), ("bert", 3.0), ("gpt", 9.0)):
        rows = pd.DataFrame({"method": ["dapple"], "samples_per_s": [value], "depth": 4, "status": "ok"})
        panels.append(Panel(title="", rows=rows, point="depth", group=group))
    figure = grouped_bars(
        panels, METHODS, series="method", value="samples_per_s", ylabel="samples/s", xlabel="D"
    )
    first, second, other = (axes.get_ylim() for axes in figure.axes[:3])
    assert first == second
    assert first[1] > 3.0
    assert other[1] > 9.0 > first[1]
