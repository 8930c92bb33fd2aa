"""The memory frontier and the block beside Table 6."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.artefacts.frontier import _picture, lower_line, tidy
from analysis.artefacts.table6_searched import KEYS, _doubt
from analysis.artefacts.table6_searched import tidy as tidy_searched


def cells(points: list[tuple[str, float, float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(method, peak, bubble) → the frames that a results folder gives."""
    rows = [
        {
            "status": "ok",
            "bubble_ratio": bubble,
            "split_backward": False,
            "depth": 4,
            "micro_batches": 8,
            "method": method,
            "origin": "simulated",
            "cell": str(place),
            "attempt": 1,
        }
        for place, (method, _, bubble) in enumerate(points)
    ]
    devices = [
        {"cell": str(place), "attempt": 1, "peak_activation_ma": value}
        for place, (_, peak, _) in enumerate(points)
        for value in (peak, peak - 0.5)
    ]
    return pd.DataFrame(rows), pd.DataFrame(devices)


def test_only_points_that_nothing_dominates_are_best() -> None:
    frame = tidy(*cells([("dapple", 4, 0.2), ("gpipe", 4, 0.25), ("dapple", 2, 0.4), ("gpipe", 5, 0.2)]))
    assert frame["peak_activation_ma"].tolist() == [2, 4, 4, 5]
    assert frame["makespan_units"].tolist() == [40, 30, 32, 30]
    assert frame["best"].tolist() == [True, True, False, False]


def test_no_point_beats_the_bound_of_its_placement_and_peak() -> None:
    frame = tidy(*cells([("dapple", 4, 1 - 24 / 33), ("bitpipe", 4, 1 - 24 / 26)])).set_index("method")
    assert frame["makespan_units"].to_dict() == {"bitpipe": 26, "dapple": 33}
    assert frame["lower_bound_units"].to_dict() == {"bitpipe": 26, "dapple": 33}


def test_a_grid_that_has_run_in_part_is_drawn_in_part() -> None:
    """One kind of backward at one depth: the other panel stays away."""
    drawn = _picture(tidy(*cells([("dapple", 4, 0.2)]))).figure
    assert [axes.get_visible() for axes in drawn.axes] == [True, False]


def test_a_methods_line_only_falls() -> None:
    frame = tidy(
        *cells([("dapple", peak, bubble) for peak, bubble in ((1, 0.5), (2, 0.6), (3, 0.4), (4, 0.4))])
    )
    assert lower_line(frame)["peak_activation_ma"].tolist() == [1, 3]


def test_the_gain_is_searched_over_bitpipe_in_the_same_cell() -> None:
    common = {
        "origin": "virtual",
        "model": "m",
        "cluster": "c",
        "depth": 4,
        "micro_batches": 16,
        "global_batch": 64,
        "status": "ok",
        "peak_memory_bytes": 1.0,
        "cell": "x",
    }
    rows = [
        {**common, "variant": v, "samples_per_s": rate} for v, rate in (("full", 10.0), ("searched", 11.0))
    ]
    frame = tidy_searched(pd.DataFrame([*rows, {**rows[0], "depth": 8}]))
    assert len(frame) == 1, "a point without both orders has no gain"
    assert round(frame["gain_percent"].iloc[0], 6) == 10


@pytest.mark.parametrize(
    ("gain", "reach", "said"),
    [(1.0, None, ""), (0.01, None, " (equal)"), (1.0, 0.1, " (undecided)")],
)
def test_single_runs_that_vary_leave_a_gain_undecided(gain: float, reach: float | None, said: str) -> None:
    common = {**dict.fromkeys(KEYS, 1), "origin": "virtual", "status": "ok", "peak_memory_bytes": 1.0}
    rows = [
        {
            **common,
            "variant": name,
            "samples_per_s": rate,
            "samples_per_s_low": reach and rate - reach,
            "samples_per_s_high": reach and rate + reach,
            "cell": "x",
        }
        for name, rate in (("full", 10.0), ("searched", 10.0 + gain))
    ]
    (row,) = tidy_searched(pd.DataFrame(rows)).to_dict("records")
    assert _doubt(row) == said
