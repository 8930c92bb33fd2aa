"""A sweep's folder: its own, readable while it is written, and under names that any system takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from some_blocks import CONF, block

from bitpipe.errors import InputError
from bitpipe.simulate.unit_calibration import UnitCalibration, calibration_of
from experiments.composing.settings import RunSettings, WandbSettings
from experiments.records.store import short
from slurm import measured
from slurm.folder import Submitted, SweepFolder, find
from slurm.journal import Journal
from slurm.plan import Request

JOB = Submitted(
    job="7_0",
    block=0,
    kind="block",
    cells=("0123456789ab",),
    request=Request(nodes=1, tasks_per_node=4, gpus_per_node=0, minutes=5),
    submitted=1.0,
)


def test_sweeps_of_the_same_moment_never_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: SweepFolder.create(tmp_path, "e", "now"), range(16)))
    assert len({folder.path for folder in made}) == 16


@given(st.text(max_size=600))
def test_a_name_is_always_one_short_path_component(name: str) -> None:
    made = short(name)
    assert 0 < len(made.encode()) <= 255
    assert "/" not in made
    assert made not in (".", "..")


def test_jobs_are_read_back_and_a_cut_off_line_is_left_out(tmp_path: Path) -> None:
    folder = SweepFolder.create(tmp_path, "e", "s")
    assert folder.jobs() == []
    folder.append([JOB])
    with open(folder.path / "jobs.jsonl", "a") as file:
        file.write('{"job": "8", "blo')
    assert folder.jobs() == [JOB]


def test_a_sweep_is_found_by_experiment_stamp_both_or_path(tmp_path: Path) -> None:
    for stamp in ("1", "2"):
        folder = SweepFolder.create(tmp_path, "table", stamp)
        folder.describe([block()], {})
    for wanted in (None, "table", "2", "table/2", str(folder.path)):
        assert find(tmp_path, wanted).path == folder.path
    assert find(tmp_path, "1").path.name == "1"
    with pytest.raises(InputError, match="newest: table/2"):
        find(tmp_path, "3")


def test_a_sweep_below_another_results_folder_is_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SweepFolder.create(tmp_path / "results", "e", "s")
    monkeypatch.chdir(tmp_path)
    assert folder.arguments == "e/s"
    monkeypatch.chdir("/")
    assert folder.arguments == f"e/s --results {tmp_path}/results"


def test_blocks_come_back_as_they_were(tmp_path: Path) -> None:
    blocks = [block(cells=2), block(depth=8)]
    folder = SweepFolder.create(tmp_path, "e", "s")
    folder.describe(blocks, {"revision": "abc"})
    assert SweepFolder(folder.path).blocks() == blocks
    assert list(SweepFolder(folder.path).names) == [cell.id for one in blocks for cell in one.cells]


def test_blocks_of_every_experiment_come_back_as_they_were(tmp_path: Path) -> None:
    """Cells that differ in cluster, calibration, model, precision, schedule and options."""
    one = block()
    cell = one.cells[0]
    unit = UnitCalibration(transfer=0.25, sources={"transfer": "a guess"})
    fitted = calibration_of(yaml.safe_load((CONF / "calibration" / "full_cells.yaml").read_text()))
    others = (
        replace(cell, calibration=unit, backend="simulate"),
        replace(cell, calibration=fitted, options={"global_batch": 7, "schedule": "abc"}),
        replace(cell, labels={"reading": "n_is_d", "row": 3, "share": 0.1}),
        replace(cell, job=replace(cell.job, clip_norm=1.0, precision="fp64", learning_rate=1e-30)),
        replace(cell, job=replace(cell.job, schedule=replace(cell.job.schedule, cap=3, placement="v"))),
    )
    settings = RunSettings(results=tmp_path, data_path=tmp_path / "a b", wandb=WandbSettings(entity="e"))
    blocks = [replace(one, cells=(other,), settings=settings) for other in others]
    folder = SweepFolder.create(tmp_path, "e", "s")
    folder.describe(blocks, {})
    assert SweepFolder(folder.path).blocks() == blocks
    assert not list(folder.path.glob("*.pkl"))


def _pickle(path: Path) -> None:
    path.with_name("blocks.pkl").write_bytes(b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    path.unlink()


def _replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_pickle, "type the sweep's command again"),
        (_replaced('"depth": 4', '"depth": 8'), "not those of their ids"),
        (_replaced('"seed": 0', '"seed": 0, "more": 1'), "holds no blocks"),
        (_replaced('"cells": [', '"cells": [7, '), "holds no blocks"),
        (_replaced('[{"block"', '[[{"block"'), "holds no blocks"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "holds no blocks"),
        (lambda path: path.write_text("{}"), ""),
    ],
)
def test_changed_blocks_are_one_line_and_nothing_in_them_is_run(
    tmp_path: Path, change: Callable[[Path], None], complaint: str
) -> None:
    folder = SweepFolder.create(tmp_path, "e", "s")
    folder.describe([block()], {})
    change(folder.path / "blocks.json")
    if not complaint:
        assert folder.blocks() == []
        return
    with pytest.raises(InputError, match=complaint) as caught:
        folder.blocks()
    assert "\n" not in str(caught.value)


def test_a_cluster_file_is_never_overwritten_in_silence(tmp_path: Path) -> None:
    folder = SweepFolder.create(tmp_path, "e", "s")
    rate = {"bandwidth": 1e11, "latency": 1e-5}
    ranks = [{"host": "n0", "device": "GPU", "matmul_flops": 1e14}] * 2
    links = {"p2p_intra": rate, "all_reduce_intra": rate, "p2p_inter": None, "all_reduce_inter": None}
    (folder.jobs_folder / "7").mkdir()
    (folder.jobs_folder / "7" / "preflight.json").write_text(
        json.dumps({"ranks": ranks, "links": links, "problems": []})
    )
    path = tmp_path / "here.yaml"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"here\.yaml: is there already \(--force replaces it\)"):
        measured.write(folder, path)
    assert path.read_text() == "mine"
    measured.write(folder, path, force=True)
    assert "peak_flops" in path.read_text()


def test_a_journal_knows_what_is_open_ended_and_taken_away(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "7_0")
    assert journal.open() == {}
    journal.write("begin", cell="a", attempt=1)
    journal.write("begin", cell="b", attempt=4)
    journal.write("end", cell="a", attempt=1, status="ok")
    assert journal.open() == {"b": 4}
    journal.write("end", cell="b", attempt=4, status="preempted", taken=True)
    assert (journal.open(), journal.taken()) == ({}, {"b"})
    journal.write("begin", cell="b", attempt=5)
    assert journal.open() == {"b": 5}
    with open(journal.path, "a") as file:
        file.write('{"event": "end", "ce')
    assert journal.attempts() == {"a": 1, "b": 5}
