"""A rank is killed in the middle of a sweep on real ranks: one cell fails, the sweep goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ["backend=virtual", "model=bert_tiny", "model.layers=4", "depth=2", "micro_batches=4", "measured=1"]


def test_a_killed_rank_fails_its_cell_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    sweep = _start(tmp_path)
    try:
        victims = _running(tmp_path, sweep)
        os.kill(victims[1], signal.SIGKILL)
        killed = time.monotonic()
        record = _first_record(tmp_path, sweep)
        assert time.monotonic() - killed < 5
        output, _ = sweep.communicate(timeout=120)
    finally:
        sweep.kill()
        sweep.wait()
    assert record["status"] == "failed"
    assert (record["cause"]["rank"], record["cause"]["signal"]) == (1, "SIGKILL")
    assert "killed by SIGKILL" in record["cause"]["message"]
    records = [json.loads(path.read_text()) for path in tmp_path.glob("cells/*/a1/record.json")]
    assert sorted(one["status"] for one in records) == ["failed", "ok"]
    assert sweep.returncode == 1
    assert "1 ok, 1 failed" in output
    pids = {line["pid"] for path in tmp_path.glob("cells/*/a1/rank*.jsonl") for line in _starts(path)}
    assert len(pids) == 4, "two ranks, and two new ones after the kill"
    assert not [pid for pid in pids if _alive(pid)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_leaves_no_process_and_says_that_its_cells_were_cancelled(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    sweep = _start(tmp_path)
    try:
        ranks = _running(tmp_path, sweep)
        if number is signal.SIGINT:
            os.killpg(sweep.pid, number)  # as a terminal does: to the ranks, too
        else:
            sweep.send_signal(number)
        output, _ = sweep.communicate(timeout=30)
    finally:
        sweep.kill()
        sweep.wait()
    assert sweep.returncode == status
    assert output.rstrip().endswith("interrupted")
    assert "Traceback" not in output
    records = [json.loads(path.read_text()) for path in tmp_path.glob("cells/*/a1/record.json")]
    assert [one["status"] for one in records] == ["cancelled", "cancelled"]
    assert {one["cause"]["signal"] for one in records} == {number.name}
    assert not [pid for pid in ranks.values() if _alive(pid)]


def _start(results: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "run.py"), "-m", *TINY, "method=bitpipe,dapple", "iterations=40"]
    command += [f"results={results}", "wandb.mode=disabled", "hydra/launcher=local"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def _running(results: Path, sweep: subprocess.Popen[str]) -> dict[int, int]:
    """Rank → pid, once the ranks iterate."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert sweep.poll() is None, sweep.communicate()[0]
        logs = list(results.glob("cells/*/a1/rank*.jsonl"))
        if len(logs) == 4 and all('"iteration"' in log.read_text() for log in logs):
            return {line["rank"]: line["pid"] for log in logs for line in _starts(log)}
        time.sleep(0.02)
    raise AssertionError("the ranks did not start to iterate")


def _first_record(results: Path, sweep: subprocess.Popen[str]) -> dict[str, dict[str, object]]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for path in results.glob("cells/*/a1/record.json"):
            return json.loads(path.read_text())  # type: ignore[no-any-return]
        time.sleep(0.02)
    raise AssertionError("no record appeared")


def _starts(log: Path) -> list[dict[str, int]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return [line for line in lines if line["event"] == "start"]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
