"""A sweep's folder: its own, readable while it is written, and under names that any system takes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_blocks import block

from bitpipe.errors import InputError
from experiments.records.store import short
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
