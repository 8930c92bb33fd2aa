"""Records on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.composing.sweep import Sweep
from experiments.records.record import Cause, Record, RecordError, Status
from experiments.records.store import Store, read_record
from experiments.running.attempt import begin, end

Plan = Callable[..., Sweep]

METRICS = {"samples_per_s": 2.0, "iteration_seconds": 8.0, "iterations_seconds": [8.0], "global_batch": 16}


@pytest.fixture
def record(planned: Plan) -> Record:
    sweep = planned("depth=4")
    cell = sweep.cells[0]
    begun = begin(cell, sweep.blocks[0], 1)
    return end(begun, status=Status.OK, cause=None, metrics=METRICS)


def test_what_is_written_is_read_back_equal(record: Record, tmp_path: Path) -> None:
    path = Store(tmp_path).write(record)
    assert path == tmp_path / "cells" / record.cell / "a1" / "record.json"
    assert read_record(path).document() == record.document()
    assert [file.name for file in path.parent.iterdir()] == ["record.json"], "no temporary file is left"


def test_it_is_strict_json(record: Record, tmp_path: Path) -> None:
    odd = replace(record, metrics={**METRICS, "bubble_ratio": float("nan"), "losses": [float("inf")]})
    path = Store(tmp_path).write(odd)
    document = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert document["metrics"]["bubble_ratio"] is None
    assert document["metrics"]["losses"] == [None]


@pytest.mark.parametrize(
    "change",
    [
        {"cell": "../etc"},
        {"attempt": 0},
        {"metrics": {}},
        {"cause": Cause(kind="signal", message="an ok record has no cause")},
        {"status": Status.FAILED},
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_not_written(
    record: Record, tmp_path: Path, change: dict[str, object]
) -> None:
    with pytest.raises(RecordError):
        Store(tmp_path).write(replace(record, **change))  # type: ignore[arg-type]
    assert not (tmp_path / "cells").exists()


def test_damaged_and_foreign_records_are_no_records(record: Record, tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write(record)
    whole = path.read_text()
    future = json.dumps({**json.loads(whole), "schema": 99})
    for text in (whole[: len(whole) // 2], "", "[]", "\x00", future):
        path.write_text(text)
        assert store.read(record.cell, 1) is None
        assert store.finished(record.cell) is None


def test_the_newest_finished_attempt_counts(record: Record, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record)
    cause = Cause(kind="signal", message="killed", rank=3, signal="SIGKILL")
    store.write(replace(record, attempt=2, status=Status.FAILED, cause=cause, metrics={}))
    assert store.latest(record.cell).attempt == 2  # type: ignore[union-attr]
    assert store.finished(record.cell).attempt == 1  # type: ignore[union-attr]
    assert store.best(record.cell).attempt == 1  # type: ignore[union-attr]


def test_two_sweeps_never_share_an_attempt(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda _: store.claim("0" * 12), range(24)))
    assert sorted(claimed) == list(range(1, 25))


def test_a_record_holds_no_secret_and_no_path_of_this_machine(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(record.document())
    assert str(Path.home()) not in text
    assert str(Path(__file__).resolve().parents[2]) not in text
    assert "API_KEY" not in text
