"""Bars of throughput."""

from __future__ import annotations

import pandas as pd

from analysis.bars import Panel, grouped_bars
from analysis.labels import METHODS


def test_a_method_without_a_look_of_its_own_is_drawn_under_its_name() -> None:
    rows = pd.DataFrame({"method": ["dapple", "my_method"], "samples_per_s": [1.0, 2.0]})
    rows = rows.assign(depth=4, status="ok")
    panel = Panel(title="", rows=rows, point="depth")
    figure = grouped_bars(
        [panel], METHODS, series="method", value="samples_per_s", ylabel="samples/s", xlabel="D"
    )
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["DAPPLE", "my_method"]
    assert len(figure.axes[0].containers) == 2
