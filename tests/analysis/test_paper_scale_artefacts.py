"""Speedups, best choices and break-even, on frames small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.artefacts.table5 import choices
from analysis.artefacts.throughput import READINGS, scaling
from analysis.artefacts.tradeoff import best_of, break_even
from analysis.drawing.speedup_figure import speedup_picture
from analysis.speedups import against_paper, speedups, summary


def test_a_speedup_pairs_cells_of_one_setting_and_none_is_invented() -> None:
    rows = pd.DataFrame(
        {
            "model": "bert_64",
            "global_batch": [32, 32, 64, 64, 128],
            "method": ["bitpipe", "dapple", "bitpipe", "dapple", "dapple"],
            "samples_per_s": [12.7, 10.0, 11.0, 10.0, 10.0],
        }
    )
    each = speedups(rows, ["model", "global_batch"])
    assert each["speedup"].tolist()[:2] == pytest.approx([1.27, 1.1])
    assert pd.isna(each["speedup"].iloc[2])
    means = against_paper(each, ["model"], {"bert_64": "fig9a"})
    assert means.to_dict("records") == [
        {
            "model": "bert_64",
            "compared_with": "dapple",
            "mean_speedup": pytest.approx(1.185),
            "settings": 2,
            "figure": "fig9a",
            "paper_mean_speedup": 1.27,
            "error_percent": pytest.approx(100 * (1.185 / 1.27 - 1)),
        }
    ]
    assert "mean error 6.7%" in summary(means, "here")


def grid(**changes: object) -> pd.DataFrame:
    rows = pd.DataFrame(
        {
            "origin": "simulated",
            "reading": "n_is_d",
            "model": "bert_64",
            "gpus": 8,
            "method": "bitpipe",
            "width": [2, 1, 1],
            "depth": [4, 8, 8],
            "micro_batch_size": [4, 4, 8],
            "micro_batches": [4, 8, 8],
            "global_batch": [32, 32, 64],
            "samples_per_s": [40.0, 36.0, None],
            "status": ["ok", "ok", "oom"],
            "calibrated": True,
        }
    )
    return rows.assign(**changes)


def test_the_search_names_the_best_choice_and_what_the_paper_s_would_lose() -> None:
    (row,) = choices(grid()).to_dict("records")
    assert (row["width"], row["depth"], row["micro_batch_size"]) == (2, 4, 4)
    assert (row["paper_width"], row["paper_depth"], row["paper_micro_batch_size"]) == (1, 8, 4)
    assert row["same_as_paper"] is False
    assert row["paper_choice_loses_percent"] == pytest.approx(10)


def test_a_cell_that_does_not_fit_is_never_the_best() -> None:
    (row,) = choices(grid(samples_per_s=[40.0, 41.0, 99.0])).to_dict("records")
    assert row["same_as_paper"] is True
    assert row["paper_choice_loses_percent"] == pytest.approx(0)


def sizes(ours: list[float | None]) -> pd.DataFrame:
    shares = [0.1, 0.2, 0.3]
    rows = [
        {
            "origin": "simulated",
            "hidden": int(1000 * share),
            "stage_share": share,
            "method": method,
            "micro_batch_size": 1,
            "samples_per_s": value,
            "status": "oom" if value is None else "ok",
            "reason": None,
            "peak_memory_bytes": 1.0,
        }
        for method, values in (("dapple", [10.0, 10.0, 10.0]), ("bitpipe", ours))
        for share, value in zip(shares, values, strict=True)
    ]
    return best_of(pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("ours", "share", "fits"),
    [
        ([12.0, 11.0, 9.0], 0.25, 0.3),  # crosses half-way between 0.2 and 0.3
        ([12.0, 11.0, 10.5], 0.3, 0.3),  # never crosses: as far as it fits
        ([12.0, 11.0, None], 0.2, 0.2),  # memory ends it
        ([9.0, 8.0, 7.0], 0.1, 0.3),  # never pays
    ],
)
def test_break_even_is_where_the_second_copy_stops_to_pay(
    ours: list[float | None], share: float, fits: float
) -> None:
    found = break_even("simulated", sizes(ours))
    assert found["break_even_share"] == pytest.approx(share)
    assert found["last_fitting_share"] == pytest.approx(fits)


def test_weak_scaling_is_measured_against_the_fewest_gpus() -> None:
    rows = pd.DataFrame(
        {
            "model": "bert_64",
            "origin": "simulated",
            "reading": "n_is_d",
            "method": "bitpipe",
            "gpus": [32, 8],
            "samples_per_s": [120.0, 40.0],
        }
    )
    assert scaling(rows)["weak_scaling_efficiency"].tolist() == pytest.approx([1.0, 0.75])


def test_printed_values_and_assumptions_are_kept_apart() -> None:
    folder = Path(__file__).resolve().parents[2] / "results" / "paper"
    assumptions = pd.read_csv(folder / "assumptions.csv")
    assert list(assumptions) == ["key", "value", "status", "section", "effect_if_wrong"]
    assert assumptions["key"].is_unique
    assert set(assumptions["status"]) == {"stated", "inferred", "assumed"}
    assert assumptions.notna().all().all()
    assert "global_batch" not in pd.read_csv(folder / "table5_best.csv")


def test_mean_speedups_are_drawn_beside_the_paper_s_one_bar_per_reading() -> None:
    means = pd.DataFrame(
        {
            "model": "bert_64",
            "origin": "simulated",
            "reading": ["fixed_batch", "n_is_d"],
            "compared_with": "dapple",
            "mean_speedup": [1.2, 1.3],
            "figure": "fig9c",
            "paper_mean_speedup": 1.28,
        }
    )
    (picture,) = speedup_picture(means, "x", "x", READINGS)
    (axes,) = picture.figure.axes
    heights = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([1.28, 1.2, 1.3])
    assert len({bar.get_hatch() for bar in axes.patches}) == 3, "told apart without colour"
