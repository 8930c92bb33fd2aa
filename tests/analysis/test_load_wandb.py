from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from result_folders import TINY, VARIANTS, Folder, make_cell, make_record
from wandb_files import run_file
from wandb_server import Server, serve

from analysis.__main__ import main
from analysis.artefacts.table6 import tidy
from analysis.load import load, load_offline, load_online
from analysis.load.paper import ablation
from analysis.load.results import Results
from analysis.load.wandb_log import BLOCK, frames
from analysis.load.wandb_offline import read_offline
from bitpipe.origin import Origin
from experiments.records.record import Status

ROWS = [{"loss": 1 / (step + 1), "memory.rank0": float(step)} for step in range(600)]


def publish_all(folder: Folder) -> None:
    """Let the real sink write wandb's copies of the folder's records, beside each record."""
    program = f"""
import sys
from pathlib import Path
from experiments.composing.settings import WandbSettings
from experiments.records.store import read_record
from experiments.records.wandb_sink import publish
for path in sorted(Path({str(folder.root)!r}).glob("cells/*/a*/record.json")):
    rows = [{{"seconds": 0.1 * step, "loss/min": 1.0 / (step + 1)}} for step in range(3)]
    told = publish(read_record(path), rows, path.parent, WandbSettings(mode="offline"))
    assert told["state"] == "offline", told
"""
    where = os.environ | {"HOME": str(folder.root)}
    subprocess.run([sys.executable, "-c", program], env=where, check=True, timeout=200)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """One row of Table 6, one cell failed, as records and in wandb's own files."""
    folder = Folder(tmp_path_factory.mktemp("logged"))
    cells = {name: make_cell(Origin.VIRTUAL, variant=name, model=TINY) for name in VARIANTS}
    for place, name in enumerate(["full", "without_v", "without_e"]):
        times = [1, 1, 1, 1 / 3 + place / 7, 1 / 3 + place / 7 + 0.001]
        folder.add(make_record(cells[name], times=times, calibrated=True, traffic_bytes={"F/intra": 1}))
    folder.add(make_record(cells["without_m"], status=Status.FAILED))
    folder.sweep("table6_ablation", cells.values())
    publish_all(folder)
    return folder


def table6(folder: Folder, source: str) -> str:
    ours = Results(folder.root, source).experiment("table6_ablation")
    return tidy(ours, ablation()).to_csv()


def test_table_6_is_the_same_from_records_and_from_wandbs_offline_files(logged: Folder) -> None:
    expected = table6(logged, "records")
    assert expected.count("virtual") == 4
    assert table6(logged, "wandb-offline") == expected
    steps = load_offline(logged.root).steps
    assert len(steps) == 4 * 3
    assert set(steps["cell"]) == set(load(logged.root).cells["cell"])
    assert load_offline(logged.root).problems.empty


def test_table_6_is_the_same_through_the_wandb_api(logged: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    for path in logged.root.rglob("run-*.wandb"):
        if not path.is_symlink():
            run, steps = (read_offline(path).document, read_offline(path).steps)
            assert run is not None
            history = steps.rename(columns={"step": "_step"}).to_dict("records")
            state = "finished" if run["exit_code"] == 0 else "failed"
            server.runs[run["id"]] = run | {"history": history, "state": state}
    expected = table6(logged, "records")
    with serve(server):
        use(server, monkeypatch)
        assert table6(logged, "wandb:ent/bench") == expected
        server.runs[run["id"]]["lines"] = 99
        problems = load_online("ent/bench").problems["problem"].tolist()
    assert "the server counts 99 rows of steps, 3 came" in problems


def test_an_unreachable_server_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Server(address="http://127.0.0.1:9"), monkeypatch)
    assert main(["table6_ablation", "--source", "wandb:ent/bench"]) == 2
    assert capsys.readouterr().err.strip().count("\n") == 0


def use(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_BASE_URL", server.address)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.teardown()


def test_long_records_are_put_together_across_blocks() -> None:
    data = run_file("r", [{"text": "x" * 3 * BLOCK, "loss": 0.5}])
    problems: list[str] = []
    assert len(list(frames(data, problems))) == 4
    assert problems == []


@pytest.mark.parametrize(("exit_code", "age", "state"), [(None, 0, "running"), (None, 600, "crashed")])
def test_no_exit_record_means_running_or_crashed(
    tmp_path: Path, exit_code: None, age: float, state: str
) -> None:
    path = tmp_path / "run-r.wandb"
    path.write_bytes(run_file("r", ROWS, exit_code=exit_code))
    os.utime(path, (time.time() - age, time.time() - age))
    problems = load_offline(tmp_path).problems["problem"].tolist()
    assert f"no exit record: {state}; 600 rows of steps kept" in problems


def test_a_cut_at_a_record_boundary_shows_as_no_exit_record(tmp_path: Path) -> None:
    data = run_file("r", ROWS)
    (tmp_path / "run-r.wandb").write_bytes(data[: data.rfind(run_file("r", [])[-12:])])
    assert any("no exit record" in problem for problem in load_offline(tmp_path).problems["problem"])


def test_foreign_and_empty_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "run-a.wandb").write_bytes(b"something else")
    (tmp_path / "run-b.wandb").write_bytes(b"")
    problems = load_offline(tmp_path).problems.set_index("path")["problem"].to_dict()
    assert problems == {"run-a.wandb": "not a wandb file, skipped", "run-b.wandb": "empty file, skipped"}


WHOLE = run_file("r", ROWS, summary={"done": True})


def _damaged(kind: str, at: float, size: int) -> bytes:
    place = int(at * (len(WHOLE) - 1))
    if kind == "cut":
        return WHOLE[:place]
    data = bytearray(WHOLE)
    if kind == "flip":
        data[place] ^= 1 << (size % 8)
    else:
        end = min(place + size, len(data))
        data[place:end] = bytes(end - place)
    return bytes(data)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(["cut", "flip", "zero"]), at=st.floats(0, 1), size=st.integers(1, 5000))
def test_no_damage_raises_and_no_loss_is_silent(
    tmp_path_factory: pytest.TempPathFactory, kind: str, at: float, size: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "run-r.wandb"
    path.write_bytes(_damaged(kind, at, size))
    reading = read_offline(path)
    lost = len(reading.steps) < len(ROWS) or not (reading.document or {}).get("summary")
    exited = (reading.document or {}).get("exit_code") is not None
    assert not lost or reading.problems or not exited
    expected = [row["loss"] for row in ROWS]
    assert set(reading.steps.get("loss", [])) <= set(expected)  # nothing is invented


def test_200_runs_load_in_6_s_and_from_the_cache_in_half_a_second(tmp_path: Path) -> None:
    values = random.Random(0)
    rows = [{f"metric{k}": values.random() for k in range(40)} for _ in range(100)]
    data = run_file("r", rows)
    for number in range(200):
        (tmp_path / f"run-{number}.wandb").write_bytes(data)
    load_offline(Path(__file__).parent)  # imports
    read_offline(tmp_path / "run-0.wandb")

    def seconds() -> float:
        begin = time.process_time()
        steps = load_offline(tmp_path).steps
        assert steps.shape == (20_000, 45)
        return time.process_time() - begin

    assert seconds() <= 6.0
    assert seconds() <= 0.5
