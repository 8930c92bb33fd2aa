"""A sweep on this machine: skipping, forcing, failing, manifests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from experiments.composing.sweep import Sweep
from experiments.records import provenance
from experiments.records.manifest import write_manifest
from experiments.records.record import Status
from experiments.records.store import Store
from experiments.running import outcome, simulated
from experiments.running.local import run_sweep
from experiments.running.outcome import SweepFailed

Plan = Callable[..., Sweep]
SMALL = "model.layers=8 depth=4"


@pytest.fixture(autouse=True)
def _no_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "ended", [])


def test_finished_cells_are_skipped_and_said_so(planned: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = planned(SMALL, f"{SMALL} method=dapple")
    run_sweep(sweep)
    results = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    more = planned(SMALL, f"{SMALL} method=dapple", f"{SMALL} method=gpipe")
    run_sweep(more)
    said = capsys.readouterr().out
    assert "2 of 3 cells are finished and skipped" in said
    assert [f"{line}, from its record" in said for line in results] == [True, True], said
    assert "[1/1] ok" in said
    store = Store(sweep.settings.results)
    assert [store.attempts(cell.id) for cell in more.cells] == [[1], [1], [1]]


def test_many_skipped_cells_are_counted_and_not_listed(
    planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = planned(*(f"{SMALL} micro_batches={4 * k}" for k in range(1, 10)))
    run_sweep(sweep)
    capsys.readouterr()
    run_sweep(sweep)
    said = capsys.readouterr().out
    assert "9 of 9 cells are finished and skipped" in said
    assert "from its record" not in said


def test_rerun_runs_them_again_as_a_new_attempt(planned: Plan) -> None:
    sweep = planned(SMALL)
    run_sweep(sweep)
    run_sweep(planned(f"{SMALL} rerun=true"))
    assert Store(sweep.settings.results).attempts(sweep.cells[0].id) == [1, 2]


def test_a_record_of_another_or_a_dirty_revision_is_skipped_with_a_warning(
    planned: Plan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = planned(SMALL)
    monkeypatch.setattr(provenance, "code", lambda: ("a" * 40, False))
    monkeypatch.setattr("experiments.running.skip.code", lambda: ("a" * 40, False))
    run_sweep(sweep)
    capsys.readouterr()
    run_sweep(sweep)
    assert "warning" not in capsys.readouterr().out
    monkeypatch.setattr("experiments.running.skip.code", lambda: ("b" * 40, False))
    run_sweep(sweep)
    assert "1 of those come from another or a dirty revision" in capsys.readouterr().out


def test_reference_records_never_satisfy_a_skip(planned: Plan) -> None:
    sweep = planned(SMALL)
    run_sweep(sweep)
    results = sweep.settings.results
    shutil.move(results / "cells", results / "reference" / "cells")
    run_sweep(sweep)
    assert Store(results).attempts(sweep.cells[0].id) == [1]


def test_a_failed_cell_takes_nobody_along_and_fails_the_sweep_at_its_end(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    predict = simulated.predict

    def flaky(job: object, *rest: object) -> object:
        if job.schedule.method == "dapple":  # type: ignore[attr-defined]
            raise ZeroDivisionError("a defect")
        return predict(job, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(simulated, "predict", flaky)
    sweep = planned(f"{SMALL} method=dapple", f"{SMALL} method=gpipe")
    with pytest.raises(SweepFailed, match="1 of 2 cells of adhoc failed"):
        run_sweep(sweep)
    store = Store(sweep.settings.results)
    failed, other = (store.latest(cell.id) for cell in sweep.cells)
    assert failed is not None
    assert other is not None
    assert (failed.status, other.status) == (Status.FAILED, Status.OK)
    assert failed.cause is not None
    assert "a defect" in failed.cause.message
    assert "ZeroDivisionError" in str(failed.cause.traceback)
    assert "1 ok, 1 failed" in capsys.readouterr().out
    monkeypatch.setattr(simulated, "predict", predict)
    run_sweep(sweep)
    assert store.finished(sweep.cells[0].id).attempt == 2  # type: ignore[union-attr]


def test_the_outcome_is_that_of_the_attempts_made_not_of_older_ones(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sweep(planned(SMALL, f"{SMALL} method=dapple"))
    capsys.readouterr()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(simulated, "predict", broken)
    with pytest.raises(SweepFailed, match="1 of 1 cell of adhoc failed"):
        run_sweep(planned(f"{SMALL} rerun=true"))
    assert "adhoc: 1 cell: 1 failed\n" in capsys.readouterr().out
    (one,) = planned(SMALL).cells
    assert Store(planned(SMALL).settings.results).best(one.id).attempt == 1  # type: ignore[union-attr]
    run_sweep(planned(SMALL))  # what is skipped counts by its record
    assert "adhoc: 1 cell: 1 ok\n" in capsys.readouterr().out


def test_what_only_a_job_found_invalid_is_a_failure_and_is_run_again(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule's file, say, that was missing where the cell ran; the sweep itself refuses nothing."""

    def refuses(*_: object) -> None:
        raise InputError("schedule", "mine.py", "no such file")

    monkeypatch.setattr(simulated, "predict", refuses)
    with pytest.raises(SweepFailed):
        run_sweep(planned(SMALL))
    monkeypatch.undo()
    sweep = planned(SMALL)
    run_sweep(sweep)
    assert [r.status for a in (1, 2) if (r := Store(sweep.settings.results).read(sweep.cells[0].id, a))] == [
        Status.INVALID,
        Status.OK,
    ]


def test_a_refusal_is_recorded_once(planned: Plan) -> None:
    overrides = (f"experiment.invalid=record {SMALL} depth=5",)
    for _ in range(2):
        run_sweep(planned(*overrides))
    sweep = planned(*overrides)
    assert Store(sweep.settings.results).attempts(sweep.points[0].cell.id) == [1]


def test_impossible_cells_of_a_search_are_recorded_with_their_reason(planned: Plan) -> None:
    sweep = planned(*(f"experiment.invalid=record {SMALL} depth={d}" for d in (4, 5)))
    run_sweep(sweep)
    record = Store(sweep.settings.results).latest(sweep.points[1].cell.id)
    assert record is not None
    assert record.status is Status.INVALID
    assert record.cause is not None
    assert "even depth" in record.cause.message


def test_what_does_not_fit_into_memory_is_a_result(planned: Plan) -> None:
    sweep = planned("depth=2 micro_batch_size=8")
    run_sweep(sweep)
    record = Store(sweep.settings.results).latest(sweep.cells[0].id)
    assert record is not None
    assert record.status is Status.OOM
    assert record.cause is not None
    assert "the device has 80.0 GiB" in record.cause.message
    assert len(record.devices["peak_memory_bytes"]) == 2


def test_a_manifest_says_which_cells_a_sweep_asked_for_and_what_it_calls_them(planned: Plan) -> None:
    sweep = planned(SMALL, f"{SMALL} method=dapple")
    run_sweep(sweep)
    (path,) = (sweep.settings.results / "sweeps" / "adhoc").glob("*.json")
    manifest = json.loads(path.read_text())
    assert [cell["cell"] for cell in manifest["cells"]] == [cell.id for cell in sweep.cells]
    assert [cell["labels"] for cell in manifest["cells"]] == [{"method": "full"}, {"method": "dapple"}]


def test_a_dry_run_writes_nothing(planned: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_sweep(replace(planned(SMALL), dry_run=True))
    assert "1 cell, 1 block; nothing is started" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_manifest_lies_one_folder_deep_whatever_the_experiment_is_called(planned: Plan) -> None:
    sweep = replace(planned(SMALL), experiment="long,with/slashes " * 20)
    path = write_manifest(sweep)
    assert path.parent.parent == sweep.settings.results / "sweeps"
    assert json.loads(path.read_text())["experiment"] == sweep.experiment
