"""Ranks as the tasks of a step: whose fault an end is, without a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitpipe.runtime.processes.failure import RankFailure
from slurm import client, jobs
from slurm.plan import Request
from slurm.pool import NodeLost, SlurmPool

HERE = Path(__file__).parent
TASKS = """
import os, signal, time

def fine(world):
    return world.rank

def raises(world):
    if world.rank == 1:
        raise RuntimeError("a defect")
    time.sleep(30)

def dies(world):
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(30)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """What happens to the next step, see ``fake_srun.py``."""
    folder = tmp_path / "script"
    folder.mkdir()
    return folder


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Functions that ranks can be called with."""
    (tmp_path / "pool_tasks.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pool_tasks", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HERE.parents[1])]))
    import pool_tasks  # type: ignore[import-not-found]

    return pool_tasks


@pytest.fixture
def pool(tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmPool]:
    monkeypatch.setenv("SLURMD_NODENAME", "localhost")
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(jobs, "failed_nodes", lambda nodes: [])

    def srun(out: str, err: str) -> list[str]:
        fake = str(HERE / "fake_srun.py")
        return [sys.executable, fake, str(script), "2", out, err, sys.executable, "-u"]

    request = Request(nodes=1, tasks_per_node=2, gpus_per_node=0, minutes=5)
    made = SlurmPool(request, srun, tmp_path / "job")
    yield made
    made.close()


OOM = "Detected 1 oom-kill event(s) in StepId=5.{step}."


def test_a_tasks_memory_is_the_hosts_and_no_later_failures(
    pool: SlurmPool, script: Path, tasks: object
) -> None:
    (script / "says").write_text(OOM)
    with pytest.raises(RankFailure, match="oom-kill") as first:
        pool.call(tasks.dies)  # type: ignore[attr-defined]
    assert (first.value.status, first.value.cause.kind, first.value.cause.rank) == ("failed", "memory", 1)
    for function, kind, words in ((tasks.raises, "exception", "a defect"), (tasks.dies, "signal", "SIGKILL")):  # type: ignore[attr-defined]
        with pytest.raises(RankFailure, match=words) as later:
            pool.call(function)
        assert (later.value.status, later.value.cause.kind, later.value.cause.rank) == ("failed", kind, 1)
        assert "oom" not in str(later.value)


def test_a_word_about_another_step_says_nothing_about_this_one(
    pool: SlurmPool, script: Path, tasks: object
) -> None:
    (script / "says").write_text("Detected 1 oom-kill event(s) in StepId=5.batch.")
    with pytest.raises(RankFailure) as found:
        pool.call(tasks.dies)  # type: ignore[attr-defined]
    assert found.value.cause.kind == "signal"


def test_a_rank_killed_as_it_starts_takes_its_job_only(pool: SlurmPool, script: Path, tasks: object) -> None:
    (script / "kill").write_text("1")
    with pytest.raises(RankFailure, match="rank 1: killed by SIGKILL") as found:
        pool.call(tasks.fine)  # type: ignore[attr-defined]
    assert (found.value.cause.rank, found.value.job) == (1, 0)
    assert pool.call(tasks.fine) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("file", "text", "words"), [
    ("broken", "slurmstepd: error: execve(): apptainer: No such file or directory",
     "execve(): apptainer: No such file or directory"),
    ("broken", "python: can not open shared object file libfoo.so", "libfoo.so"),
    ("refuse", "Unable to create step for job 5: Invalid generic resource (gres) specification",
     "Invalid generic resource"),
])  # fmt: skip
def test_ranks_that_cannot_start_say_why_and_no_job_is_to_blame(
    pool: SlurmPool, script: Path, tasks: object, file: str, text: str, words: str
) -> None:
    (script / file).write_text(text)
    with pytest.raises(RankFailure) as found:
        pool.call(tasks.fine)  # type: ignore[attr-defined]
    assert words in str(found.value)
    assert "ranks [0, 1] did not start" in str(found.value)
    assert found.value.job < 0


def test_a_step_is_started_again_where_only_the_controller_was_away(
    pool: SlurmPool, script: Path, tasks: object, capsys: pytest.CaptureFixture[str]
) -> None:
    (script / "refuse").write_text("Unable to contact slurm controller (connect failure)")
    assert pool.call(tasks.fine) == 0  # type: ignore[attr-defined]
    assert (script / "steps").read_text() == "2"
    assert "starting again" in capsys.readouterr().out


def test_a_dead_node_is_no_cells_fault(
    pool: SlurmPool, script: Path, tasks: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "failed_nodes", lambda nodes: ["n2"])
    (script / "refuse").write_text("Unable to create step for job 5: Required node not available")
    with pytest.raises(NodeLost, match="node n2 failed"):
        pool.call(tasks.fine)  # type: ignore[attr-defined]


def test_good_ranks_leave_by_themselves(pool: SlurmPool, tmp_path: Path, tasks: object) -> None:
    pool.call(tasks.fine)  # type: ignore[attr-defined]
    pool.close()
    said = "".join(file.read_text() for file in (tmp_path / "job").rglob("*.txt"))
    assert "CANCELLED" not in said
    assert "error" not in said
