"""What the paper leaves open: each reading fitted again, and asked for what the paper prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.artefacts.sensitivity import sensitivity as artefact
from analysis.load.results import NoResults, Results
from experiments import sensitivity
from experiments.sensitivity import FILE, READINGS, Model, nulls

ROWS: dict[str, dict[str, Any]] = {row["micro_batches"]: row for row in sensitivity.sensitivity(READINGS[:1])}


def test_the_default_comes_within_six_percent_of_the_speedups_under_both_readings_of_n() -> None:
    assert set(ROWS) == {"fixed_batch", "n_is_d"}
    for row in ROWS.values():
        assert row["default"]
        assert len(row["speedups"]) == 12
        assert row["mean_error"] <= 0.06
        assert row["table5"]["searches"] == 24
        assert row["fig11"]["steps"] == 8
        assert row["held_out"]["cells"] == 8
        assert row["held_out"]["mean_error"] <= 0.015
        assert {"compute_efficiency", "op_overhead", "p2p_inter_efficiency"} == set(row["fitted"])


def test_the_null_models_are_as_good_as_the_paper_s_numbers_make_them() -> None:
    known = nulls()
    assert known["speedups_mean_error"] == pytest.approx(0.0255, abs=2e-4)
    assert known["held_out_mean_error"] == pytest.approx(0.0125, abs=1e-4)


def test_a_reading_changes_what_it_names_and_nothing_else() -> None:
    assert [reading.name for reading in READINGS].count("default") == 1
    one = ("bert-64", 8, 2, 4, 8)
    plain, released, bert = (
        Model.of(name).job("bitpipe", *one)
        for name in ("default", "rank order: BitPipe as released", "BERT: vocabulary 29056, binary head")
    )
    assert (plain.layout, released.layout) == ("replica_aware", "released")
    assert (bert.model.vocabulary, bert.model.next_sentence) == (29056, True)
    assert plain.model == released.model
    assert Model.of("default").job("dapple", *one).layout == "megatron"
    assert Model.of("default").job("mixpipe", *one).schedule.cap == (3 * 8 - 2) // 2


def test_the_table_shows_every_reading_beside_the_nulls_and_claims_no_skill_below_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(NoResults, match=r"make them with: python -m experiments.sensitivity"):
        artefact(Results(tmp_path))
    other = [row | {"reading": "another", "default": False, "mean_error": 0.01} for row in ROWS.values()]
    rows = [*ROWS.values(), *other]
    document = {"schema": 1, "origin": "simulated", "nulls": nulls(), "rows": rows}
    (tmp_path / FILE).write_text(json.dumps(document))
    rendered = artefact(Results(tmp_path))
    frames = {table.name: table.frame for table in rendered.tables}
    assert len(frames["sensitivity"]) == 4
    assert len(frames["sensitivity_speedups"]) == 4 * 12
    assert set(frames["sensitivity"]["origin"]) == {"simulated"}
    grid = rendered.tables[0].printed
    assert [block.title for block in grid.blocks] == ["N = B̂/(B·W)", "N = D", "null models"]
    assert sum("no skill is claimed" in note for note in rendered.notes) == 2
