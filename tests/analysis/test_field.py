"""Who wins where: the frontier, the best choice that fits, and what is level."""

from __future__ import annotations

import pandas as pd

from analysis.artefacts.field import _picture, layout, tidy, winners
from analysis.comparing.grid import to_markdown
from analysis.memory import GIB

CHOICES = [
    ("zb_v", 1, 10.0, 20.0),
    ("zb_v", 2, 12.0, 30.0),
    ("bitpipe", 2, 11.95, 30.0),
    ("gems", 1, 5.0, 20.0),
]


def rows(choices: list[tuple[str, int, float, float]]) -> pd.DataFrame:
    """(method, B, samples/s, GiB) → the cells of one place."""
    place = {"origin": "simulated", "cluster": "a800", "model": "bert_64", "ranks": 8, "global_batch": 32}
    return pd.DataFrame(
        {
            **place,
            "method": method,
            "variant": method,
            "chunks": None,
            "cap": None,
            "micro_batch_size": size,
            "micro_batches": 32 // size,
            "samples_per_s": rate,
            "peak_memory_bytes": peak * GIB,
            "status": "ok",
            "reason": None,
            "cell": f"{method}{size}",
        }
        for method, size, rate, peak in choices
    )


def test_the_frontier_is_what_no_other_choice_dominates() -> None:
    frame = tidy(rows(CHOICES))
    assert set(frame[frame["frontier"]]["cell"]) == {"zb_v1", "zb_v2"}


def test_each_memory_has_its_winner_and_each_method_its_best_choice_that_fits() -> None:
    best = winners(tidy(rows(CHOICES))).groupby("memory_gib")["cell"].agg(list)
    assert best.to_dict() == {24: ["zb_v1", "gems1"], 40: ["zb_v2", "bitpipe2", "gems1"], 80: best[40]}


def test_what_is_under_one_percent_behind_is_level() -> None:
    best = winners(tidy(rows(CHOICES)))
    assert best[best["memory_gib"].eq(40)]["level"].tolist() == [True, True, False]
    assert "ZB-V (2, 16), 2 level" in to_markdown(layout(best))


def test_where_nothing_fits_the_table_says_so() -> None:
    shown = to_markdown(layout(winners(tidy(rows([("gems", 1, 5.0, 50.0)])))))
    assert shown.count("nothing fits") == 2
    assert shown.count("does not fit") == 1, "BitPipe, which did not run"


def test_a_place_is_a_panel_and_only_methods_that_ran_are_in_the_legend() -> None:
    drawn = _picture("simulated", tidy(rows(CHOICES))).figure
    assert len(drawn.axes) == 1
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["BitPipe", "GEMS", "ZB-V"]
