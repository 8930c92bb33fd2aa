"""Damaged and hostile records, logs, manifests and wandb files: one line each, and the rest still drawn."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from result_folders import VARIANTS, Folder, make_cell, make_record

from analysis.artefacts.table6 import layout, tidy
from analysis.claims.speed import full_is_best
from analysis.comparing.grid import to_markdown
from analysis.load import load, load_offline
from analysis.load.paper import ablation
from analysis.load.rank_logs import read_rank_log
from analysis.load.results import Results
from analysis.load.wandb_offline import steps_frame
from analysis.remarks import remarks

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """One good row of Table 6, and the name of a fifth record that a test damages."""
    folder = Folder(tmp_path_factory.mktemp("hostile"))
    cells = [make_cell(variant=name) for name in VARIANTS]
    folder.add(*(make_record(cell, 20.0 + place) for place, cell in enumerate(cells)))
    return folder.sweep("table6_ablation", cells)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(one for key, item in inner for one in paths(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


def drawn(folder: Folder) -> list[str]:
    """Make a table and check a claim; returns the problems, one line each."""
    results = Results(folder.root)
    rows = results.experiment("table6_ablation", every_model=True)
    frame = tidy(rows, ablation())
    assert frame.query("origin == 'simulated'")["status"].eq("ok").sum() >= 4
    assert "BERT-64 on a800" in to_markdown(layout(frame))
    remarks(rows)
    assert list(full_is_best(results))
    problems: list[str] = results.loaded.problems["problem"].tolist()
    assert all("\n" not in one for one in problems)
    return problems


@MANY
@given(data=st.data())
def test_a_record_with_any_value_anywhere_costs_itself_at_most(whole: Folder, data: st.DataObject) -> None:
    cell = make_cell(depth=8, micro_batches=8)
    document = json.loads(json.dumps(make_record(cell, 30.0).document()))
    document["seal"] = None  # as an older version wrote it: nothing else protects it
    where = data.draw(st.sampled_from(paths(document)))
    document = replaced(document, where, data.draw(JSON))
    path = whole.root / "cells" / cell.id / "a1" / "record.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    drawn(whole)


@MANY
@given(st.binary(max_size=60) | JSON.map(lambda one: json.dumps(one).encode()))
def test_whatever_lies_where_a_record_or_manifest_should_be_is_one_line(whole: Folder, data: bytes) -> None:
    for name in ("cells/0123456789ab/a1/record.json", "sweeps/table6_ablation/20200101-000000.json"):
        path = whole.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert drawn(whole)


@MANY
@given(entry=st.dictionaries(st.sampled_from(["cell", "backend", "labels", "overrides", "x"]), JSON))
def test_a_manifest_with_any_entry_is_read_or_named(whole: Folder, entry: dict[str, Any]) -> None:
    path = whole.root / "sweeps" / "table6_ablation" / "20200101-000001.json"
    path.write_text(json.dumps({"experiment": "table6_ablation", "cells": [entry]}))
    drawn(whole)


@MANY
@given(
    st.lists(st.dictionaries(st.sampled_from(["step", "path", "cell", "_step", "loss"]), JSON), max_size=4)
)
def test_rows_of_steps_become_numbers_whatever_they_hold(rows: list[dict[str, Any]]) -> None:
    frame = steps_frame([{"_step": place, **row} for place, row in enumerate(rows)])
    assert frame.columns.is_unique
    assert all(dtype.kind in "iuf" for dtype in frame.dtypes)


@MANY
@given(st.lists(JSON.map(json.dumps) | st.text(max_size=20), max_size=5))
def test_a_rank_log_of_any_lines_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rank0.jsonl"
    iteration = json.dumps(
        {"event": "iteration", "iteration": 0, "rank": 0, "loss": 1.0, "step": 7, "path": 1}
    )
    path.write_bytes("\n".join([*lines, iteration, ""]).encode(errors="surrogatepass"))
    reading = read_rank_log(path)
    assert reading.steps["step"].tolist()[-1] == 0
    assert all("\n" not in one for one in reading.problems)


def test_a_foreign_wandb_run_with_a_metric_step_stops_nothing(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb_files import run_file

    rows = [{"step": 10 * place, "path": 1.0, "cell": 2, "attempt": "x", "loss": 0.5} for place in range(3)]
    (tmp_path / "run-foreign.wandb").write_bytes(run_file("foreign", rows))
    (tmp_path / "run-other.wandb").write_bytes(run_file("other", [{"loss": 10**40}, {"loss": "Infinity"}]))
    for _ in range(2):  # read, then from the cache
        steps = load_offline(tmp_path).steps
        foreign = steps[steps["path"].astype(str).str.contains("foreign")]
        assert foreign["step"].tolist() == [0, 1, 2]
        assert foreign["step (logged)"].tolist() == [0, 10, 20]


def test_all_that_is_left_out_has_its_path(whole: Folder) -> None:
    found = load(whole.root).problems
    assert found["path"].notna().all()
