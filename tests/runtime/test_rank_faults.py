"""Whatever breaks on a rank: named, recorded, nothing left running, the rest of the block runs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from injected import Fault, break_ranks
from training import RandomData, job_of, links_of

from bitpipe.errors import InputError
from bitpipe.runtime.block import run_block
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RunResult
from bitpipe.schedule import Kind, ProgramError, generate, lower

WATCHDOG = 2.0


def block_with(
    fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[RunResult], list[Path]]:
    """Two jobs; rank 2 of the first breaks in its second iteration."""
    break_ranks(monkeypatch, Fault(kind=fault, rank=2, method="bitpipe", iteration=1, position=9))
    jobs = [job_of("bitpipe", 4, 4, iterations=3), job_of("dapple", 4, 4, iterations=3)]
    out = [folder / "a", folder / "b"]
    results = run_block(
        jobs,
        clock="virtual",
        links=[links_of(job) for job in jobs],
        data=RandomData(),
        out=out,
        watchdog=WATCHDOG,
    )
    return results, out


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for log in folder.glob("rank*.jsonl") for line in log.read_text().splitlines()]


def assert_nothing_left(out: list[Path]) -> None:
    pids = [line["pid"] for folder in out for line in lines(folder) if line["event"] == "start"]
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def seconds_to_end(result: RunResult, folder: Path) -> float:
    """From the fault to a finished result with every rank gone."""
    (struck,) = [line["time"] for line in lines(folder) if line["event"] == "fault"]
    assert isinstance(struck, float)
    return result.finished - struck


@pytest.mark.parametrize(
    ("fault", "status", "kind", "words"),
    [
        ("raise", "failed", "exception", "RuntimeError: injected fault"),
        ("kill", "failed", "signal", "killed by SIGKILL"),
        ("exit", "failed", "exception", "exited with status 7"),
        ("memory", "failed", "memory", "MemoryError"),
        ("device_memory", "oom", "memory", "CUDA error: out of memory"),
    ],
)
def test_a_broken_rank_ends_its_job_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, status: str, kind: str, words: str
) -> None:
    (broken, other), out = block_with(fault, tmp_path, monkeypatch)
    assert (broken.status, broken.reports) == (status, ())
    assert broken.cause is not None
    assert (broken.cause.kind, broken.cause.rank) == (kind, 2)
    assert words in broken.cause.message
    assert "rank 2 (replica 0, device 1), iteration 1, at " in broken.cause.message
    assert (broken.cause.traceback is not None) == (fault in ("raise", "memory", "device_memory"))
    assert seconds_to_end(broken, out[0]) <= 2.0
    assert other.status == "ok"
    assert len(other.seconds) == 3
    assert_nothing_left(out)


@pytest.mark.parametrize(
    ("fault", "words"), [("hang", "not waiting for communication"), ("stop", "its process is stopped")]
)
def test_a_silent_rank_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    (broken, other), out = block_with(fault, tmp_path, monkeypatch)
    assert broken.status == "timeout"
    assert broken.cause is not None
    assert (broken.cause.kind, broken.cause.rank) == ("watchdog", 2)
    assert words in broken.cause.message
    assert seconds_to_end(broken, out[0]) <= WATCHDOG + 1.0
    assert other.status == "ok"
    assert_nothing_left(out)


def test_a_loss_that_is_not_finite_names_rank_and_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broken, other), _ = block_with("nan", tmp_path, monkeypatch)
    assert broken.status == "failed"
    assert broken.cause is not None
    assert "NonFiniteLoss: loss nan in step 1, micro-batch" in broken.cause.message
    assert broken.cause.rank in (0, 1), "a last stage saw it"
    assert other.status == "ok"


def test_time_is_limited(tmp_path: Path) -> None:
    job = job_of("dapple", 2, 2, iterations=100_000)
    (result,) = run_block([job], clock="wall", links=[links_of(job)], data=RandomData(), limit=4.0)
    assert result.status == "timeout"
    assert result.cause is not None
    assert "not done after" in result.cause.message


LAUNCHER = """
from multiprocessing import forkserver, resource_tracker
from training import hold
from bitpipe.runtime.processes.pool import Pool
pool = Pool(2)
pool.start()
print(forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid, flush=True)
pool.call(hold)
"""


def test_no_process_outlives_its_launcher() -> None:
    """Neither ranks in the middle of their work, nor the fork server, nor the resource tracker."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert launcher.stdout is not None
    pids = [int(pid) for _ in range(3) for pid in launcher.stdout.readline().split()]
    assert len(pids) == 4
    launcher.kill()
    launcher.wait()
    ends = [
        select.select([os.pidfd_open(pid)], [], [], 30)[0] for pid in pids if Path(f"/proc/{pid}").exists()
    ]
    assert all(ends), "a process is still running"


def test_every_rank_keeps_its_own_log(tmp_path: Path) -> None:
    job = job_of("dapple", 2, 2, iterations=3)
    (result,) = run_block(
        [job], clock="virtual", links=[links_of(job)], data=RandomData(), out=[tmp_path / "a"]
    )
    for rank in range(2):
        log = [json.loads(line) for line in (tmp_path / f"a/rank{rank}.jsonl").read_text().splitlines()]
        assert [line["event"] for line in log] == ["start", *["iteration"] * 3, "end"]
        assert tuple(line["loss"] for line in log[1:4]) == result.losses
        assert tuple(line["seconds"] for line in log[1:4]) == result.seconds


def test_a_program_that_fails_the_check_never_starts() -> None:
    """The classic deadlock: both ends receive before they send."""
    job = job_of("dapple", 2, 4)
    program = lower(generate(job.schedule), sync="late", tied=True)
    row = list(program.rows[0])
    wait = next(i for i, instruction in enumerate(row) if instruction.action.kind is Kind.WAIT_B)
    send = next(i for i, instruction in enumerate(row) if instruction.action.kind is Kind.SEND_F)
    row.insert(send, row.pop(wait))
    with (
        Pool(2) as pool,
        pytest.raises(ProgramError, match=r"deadlock|posted|sequence|slot"),
    ):
        run_block(
            [job],
            clock="wall",
            links=[links_of(job)],
            data=RandomData(),
            programs=[replace(program, rows=(tuple(row), program.rows[1]))],
            pool=pool,
        )
    assert pool.generation == 0, "no rank was started"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision": "fp8"}, "precision=fp8: allowed are"),
        ({"width": 2}, "jobs=4: all jobs of a block have 2 ranks"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(change: dict[str, object], words: str) -> None:
    jobs = [job_of("dapple", 2, 2), replace(job_of("dapple", 2, 2), **change)]  # type: ignore[arg-type]
    with Pool(2) as pool, pytest.raises(InputError) as error:
        run_block(jobs, clock="wall", links=[links_of(job) for job in jobs], data=RandomData(), pool=pool)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert pool.generation == 0


def test_a_folder_too_long_for_sockets_is_named_before_ranks_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 80)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    pool = Pool(2)
    with pytest.raises(InputError, match=r"TMPDIR=.*: at most 75 bytes"):
        pool.start()
    assert pool.generation == 0
