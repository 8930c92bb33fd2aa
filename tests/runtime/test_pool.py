"""The pool itself: tasks sent, ranks watched, started again and gone, whatever happens to them."""

from __future__ import annotations

import multiprocessing.connection
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_functions import die_on_1, read_array, read_no_pickle, show_job_3, who

from bitpipe.errors import InputError
from bitpipe.runtime.processes import address, pool
from bitpipe.runtime.processes.failure import RankFailure
from bitpipe.runtime.processes.pool import Pool, check_open_files

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    with Pool(3, watchdog=3.0) as found:
        yield found


@pytest.mark.parametrize("reader", [read_array, read_no_pickle])
def test_a_data_file_that_ends_too_early_is_an_error_and_no_goodbye(
    reader: object, ranks: Pool, tmp_path: Path
) -> None:
    (tmp_path / "empty.npy").touch()
    with pytest.raises(RankFailure, match="EOFError") as caught:
        ranks.call(reader, str(tmp_path / "empty.npy"))  # type: ignore[arg-type]
    assert caught.value.cause.kind == "exception"
    assert caught.value.cause.traceback is not None
    assert "exited" not in caught.value.cause.message


@pytest.mark.parametrize("size", [10, 4 << 20])
def test_a_stopped_rank_is_named_within_the_watchdog_however_large_its_task(size: int, ranks: Pool) -> None:
    ranks.call(who)
    stopped = ranks._processes[1].pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(RankFailure, match="rank 1: its process is stopped") as caught:
        ranks.call(who, b"x" * size)
    assert time.monotonic() - begun < 10 * ranks.watchdog
    assert caught.value.cause.rank == 1
    assert not Path(f"/proc/{stopped}").exists()


def test_a_task_is_pickled_once(ranks: Pool, tmp_path: Path) -> None:
    class Counted:
        count = 0

        def __reduce__(self) -> tuple[type, tuple[()]]:
            Counted.count += 1
            return int, ()

    ranks.call(who, Counted())
    assert Counted.count == 1


def test_a_rank_that_died_between_calls_is_replaced(ranks: Pool) -> None:
    first = ranks.call(who)
    process = ranks._processes[2]
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert multiprocessing.connection.wait([process.sentinel], timeout=30)
    assert ranks.call(who) != first
    assert ranks.generation == 2


def test_a_rank_that_dies_as_its_next_task_comes_is_of_no_earlier_job(ranks: Pool) -> None:
    """The board still showed job 3 of the call before, which the next call may not have."""
    ranks.call(show_job_3)
    seen: list[int] = []

    def describe(rank: int, job: int, iteration: int, mark: int) -> str:
        seen.append(job)
        return f"rank {rank}"

    with pytest.raises(RankFailure, match="rank 1: killed by SIGKILL") as caught:
        ranks.call(die_on_1, describe=describe)
    assert set(seen) == {0}
    assert caught.value.job == 0


def test_a_process_that_the_kernel_cannot_end_yet_is_not_waited_for(
    ranks: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks.call(who)
    monkeypatch.setattr(pool, "_GONE", 0.2)
    kept = ranks._processes[0]
    kill, join = kept.kill, kept.join
    monkeypatch.setattr(kept, "kill", lambda: None)
    monkeypatch.setattr(
        kept, "join", lambda timeout=None: join(timeout) if timeout else pytest.fail("for ever")
    )
    ranks._processes, others = [kept], ranks._processes[1:]
    ranks.close()
    kill()
    for process in others:
        process.kill()


def test_nothing_is_left_in_the_temporary_folder_even_if_the_launcher_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import rank_functions; from bitpipe.runtime.processes.pool import Pool\n"
        "pool = Pool(2); pool.call(rank_functions.who)\n"
        "os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == 'killed' else pool.close()"
    )
    for way in ("closed", "killed"):
        (tmp_path / way).mkdir()
        environment = {**os.environ, "TMPDIR": str(tmp_path / way), "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", script, way], env=environment, timeout=120, check=False)
        end = time.monotonic() + 30
        while list((tmp_path / way).glob("bitpipe-*")) and time.monotonic() < end:
            time.sleep(0.05)
        assert not list((tmp_path / way).glob("bitpipe-*"))


def limited(limit: int, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    command = (
        f"ulimit -n {limit}; exec '{sys.executable}' run.py backend=virtual model=bert_tiny depth=8"
        f" results={tmp_path}/r draw=false"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env=environment,
    )


def test_too_few_open_files_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    done = limited(40, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ulimit -n=40: 8 ranks need")
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_soft_limit_is_raised_as_far_as_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: set_to.append(limits))
    check_open_files(32)
    assert set_to == [(pool._FILES + 32 * pool._FILES_PER_RANK, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 100))
    with pytest.raises(InputError, match="32 ranks need"):
        check_open_files(32)


@pytest.mark.parametrize(
    ("on_the_way", "chosen"),
    [
        ("10.0.0.7", "ib0"),
        ("192.168.1.4", "eth0"),
        ("127.0.0.1", "eth0"),
        (None, "eth0"),
        ("8.8.8.8", "eth0"),
    ],
)
def test_ranks_meet_where_other_machines_reach_them(on_the_way: str | None, chosen: str) -> None:
    interfaces = {"lo": ["127.0.0.1"], "eth0": ["192.168.1.4"], "ib0": ["10.0.0.7"]}
    assert address.interface_of(on_the_way, interfaces) == chosen
    assert address.interface_of(on_the_way, {"lo": ["127.0.0.1"]}) == "lo"


def test_a_name_that_only_this_machine_reaches_is_replaced_by_an_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address, "_interfaces", lambda: {"lo": ["127.0.0.1"], "eth0": ["10.1.2.3"]})
    monkeypatch.setattr(address, "_way_to", lambda peer: "10.1.2.3")
    for found, said, expected in (
        ("127.0.1.1", {}, "eth0"),
        ("10.1.2.3", {}, None),
        ("127.0.1.1", {"GLOO_SOCKET_IFNAME": "ib0"}, "ib0"),
    ):
        monkeypatch.setattr(address.socket, "gethostbyname", lambda name, found=found: found)
        environment = dict(said)
        address.choose_interface("node1", environment)
        assert environment.get("GLOO_SOCKET_IFNAME") == expected


@pytest.mark.slow
def test_32_ranks_start_in_seconds() -> None:
    """Absolute time, so not part of every run: 1.4 s on two idle cores."""
    begun = time.monotonic()
    with Pool(32) as found:
        found.start()
        assert time.monotonic() - begun < 15.0
