from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_folders import Folder, make_cell, make_record

from analysis.load import load
from analysis.load.rank_logs import read_rank_log
from analysis.load.records import read_record
from analysis.load.schema import CELLS
from analysis.load.sweeps import experiment_rows
from experiments.records.record import Status


def test_cells_have_exactly_the_documented_columns(table6: Folder) -> None:
    cells = load(table6.root).cells
    assert list(cells.columns) == list(CELLS)
    assert len(cells) == 48


def test_the_newest_finished_attempt_counts(folder: Folder) -> None:
    cell = make_cell()
    folder.add(make_record(cell, 18.0), make_record(cell, 19.0, attempt=2))
    folder.add(make_record(cell, status=Status.FAILED, attempt=3))
    cells = load(folder.root).cells
    assert cells["samples_per_s"].tolist() == pytest.approx([19.0])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "empty file"),
        ('{"schema": 1, "cell": "', "not JSON"),
        ("[1, 2]", "not a record"),
        ('{"schema": 0}', "record schema 0, this version reads 1 to 3"),
        ('{"schema": 1}', "is a required property"),
        ("\x00\x01", "not JSON"),
    ],
)
def test_what_is_no_record_of_this_version_is_named(folder: Folder, content: str, says: str) -> None:
    folder.add(make_record(make_cell(), 19.0))
    bad = folder.root / "cells" / "bad" / "a1" / "record.json"
    bad.parent.mkdir(parents=True)
    bad.write_text(content)
    loaded = load(folder.root)
    assert len(loaded.cells) == 1
    (problem,) = loaded.problems.itertuples()
    assert problem.path == "cells/bad/a1/record.json"
    assert says in problem.problem


def test_a_changed_file_is_read_again_and_a_broken_cache_is_no_loss(folder: Folder) -> None:
    cell = make_cell()
    folder.add(make_record(cell, 19.0))
    assert load(folder.root).cells["samples_per_s"].tolist() == pytest.approx([19.0])
    folder.add(make_record(cell, 20.0, dirty=True))
    assert load(folder.root).cells["samples_per_s"].tolist() == pytest.approx([20.0])
    for path in (folder.root / ".cache").iterdir():
        path.write_bytes(b"torn")
    assert load(folder.root).cells["samples_per_s"].tolist() == pytest.approx([20.0])


def test_an_attempt_without_a_record_is_running_or_crashed(folder: Folder) -> None:
    cell = make_cell()
    attempt = folder.store.attempt(cell.id, folder.store.claim(cell.id))
    folder.sweep("table6_ablation", [cell])
    assert load(folder.root).experiment("table6_ablation")["status"].tolist() == ["running"]
    os.utime(attempt, (time.time() - 600,) * 2)
    loaded = load(folder.root)
    assert loaded.experiment("table6_ablation")["status"].tolist() == ["crashed"]
    assert loaded.problems["problem"].tolist() == ["no record: crashed"]


LOG = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in [
        {"event": "start", "rank": 0},
        *({"event": "iteration", "rank": 0, "iteration": i, "seconds": 0.1 * i} for i in range(5)),
        {"event": "end", "rank": 0},
    ]
)


def test_a_rank_log_counts_from_its_last_start(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_bytes(LOG[: len(LOG) // 2] + b"\n" + LOG)
    reading = read_rank_log(path)
    assert reading.steps["step"].tolist() == [0, 1, 2, 3, 4]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(LOG) - 1))
def test_a_cut_rank_log_never_loses_in_silence(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "rank0.jsonl"
    path.write_bytes(LOG[:cut])
    reading = read_rank_log(path)
    assert reading.problems
    assert set(reading.steps.get("seconds", [])) <= {0.1 * i for i in range(5)}


RECORD = json.dumps(make_record(make_cell(), 19.0).document()).encode()


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, len(RECORD) - 1), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_record_never_raises(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, cut: bool
) -> None:
    data = bytearray(RECORD)
    data[place] ^= 1 << bit
    path = tmp_path_factory.mktemp("damaged") / "record.json"
    path.write_bytes(RECORD[:place] if cut else bytes(data))
    reading = read_record(path)
    assert (reading.document is None) == bool(reading.problems)


def test_rendering_never_imports_torch(table6: Folder) -> None:
    program = (
        "import sys; from analysis.__main__ import main; "
        f"main(['claims', '--results', {str(table6.root)!r}]); "
        "import analysis.report, analysis.dashboard; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=200)


def test_a_cell_that_another_command_line_asked_for_too_is_one_row() -> None:
    """A single run names no depth in its manifest; its cell is the sweep's all the same."""
    same = {"experiment": "one", "cell": "c1", "origin": "simulated", "extra": "", "method": "full"}
    sweeps = pd.DataFrame([{**same, "sweep": "2"}, {**same, "sweep": "1", "depth": 4}])
    cells = pd.DataFrame(
        [{"cell": "c1", "labels": {}, "experiment": "one", "depth": 4, "status": "ok", "context": "x"}]
    )
    rows = experiment_rows(sweeps, cells, "one")
    assert rows["depth"].tolist() == [4]
