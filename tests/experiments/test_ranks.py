"""A block on real ranks: records, links, wandb's copy."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pytest
from injected import Fault, break_ranks

from analysis.load.wandb_offline import read_offline
from bitpipe.job import Job
from bitpipe.runtime.result import RunResult
from bitpipe.schedule.timeline import Timeline
from experiments.composing.settings import WandbSettings
from experiments.composing.sweep import Sweep
from experiments.records import wandb_sink
from experiments.records.record import Record, Status
from experiments.records.store import Store
from experiments.running import link_scaling, virtual
from experiments.running.block import Block
from experiments.running.bootstrap import DRAWS, bootstrap_ratio
from experiments.running.execute import run_block

Plan = Callable[..., Sweep]
TINY = "backend=virtual model=bert_tiny model.layers=4 depth=2 micro_batches=2 iterations=3 measured=2"


@pytest.fixture(scope="module")
def block(load: Callable[..., object], tmp_path_factory: pytest.TempPathFactory) -> Block:
    from experiments.composing.sweep import plan

    results = tmp_path_factory.mktemp("results")
    jobs = [[*TINY.split(), f"method={name}", f"results={results}"] for name in ("bitpipe", "dapple")]
    (one,) = plan(load, jobs).blocks  # type: ignore[arg-type]
    return one


@pytest.fixture(scope="module")
def records(block: Block) -> list[Record]:
    """Two methods on one pool of two ranks, once for the tests below."""
    told: list[str] = []
    found = run_block(block, lambda record, name: told.append(record.cell))
    assert told == [cell.id for cell in block.cells]
    return found


@pytest.fixture
def store(block: Block) -> Store:
    return Store(block.settings.results)


def test_every_cell_has_an_ok_record_with_virtual_numbers(records: list[Record], store: Store) -> None:
    for record in records:
        assert record.status is Status.OK, record.cause
        assert store.read(record.cell, record.attempt).document() == record.document()  # type: ignore[union-attr]
        assert (record.origin, record.provenance["clock"]) == ("virtual", "virtual")
        times = record.metrics["iterations_seconds"]
        assert len(times) == 3
        seconds, batch = record.metrics["iteration_seconds"], record.metrics["global_batch"]
        assert min(times) > 0
        assert record.metrics["samples_per_s"] == pytest.approx(batch / seconds)
        assert 0 < record.metrics["bubble_ratio"] < 1
        assert len(record.metrics["losses"]) == 3


def test_methods_train_the_same_model_on_the_same_text(records: list[Record]) -> None:
    one, other = (record.metrics["losses"] for record in records)
    assert one == pytest.approx(other, rel=1e-4)
    assert records[0].identity["data"] == records[1].identity["data"] != "none"


def test_vectors_have_one_entry_per_rank_and_the_peak_is_the_sum_of_its_parts(records: list[Record]) -> None:
    for record in records:
        assert {len(values) for values in record.devices.values()} == {2}
        parts = [
            values
            for name, values in record.devices.items()
            if name.endswith("_bytes") and "peak" not in name
        ]
        assert record.devices["peak_memory_bytes"] == [sum(rank) for rank in zip(*parts, strict=True)]
        assert min(record.devices["activation_bytes"]) > 0


def test_a_timeline_and_every_ranks_log_lie_beside_the_record(records: list[Record], store: Store) -> None:
    for record in records:
        folder = store.attempt(record.cell, record.attempt)
        timeline = Timeline.of(json.loads((folder / str(record.timeline)).read_text()))
        assert timeline.devices == 2
        assert {path.name for path in folder.glob("rank*.jsonl")} == {"rank0.jsonl", "rank1.jsonl"}


def test_variants_of_a_block_share_one_link_scale(records: list[Record]) -> None:
    one, other = (record.provenance["link_scale"] for record in records)
    assert one == other
    assert one["reference"] == "bert_64"


def test_scaled_links_weigh_as_much_against_compute_as_the_clusters_do(block: Block) -> None:
    cell, forward = block.cells[0], 0.003
    scale = link_scaling.scale_of([(cell, forward)])
    here, there = link_scaling.links_of(cell, scale), link_scaling.modelled(cell)
    message = there.job.micro_batch_size * there.job.model.sequence * there.job.model.hidden * 2
    modelled_p2p = message / there.links.p2p_inter.bandwidth + there.links.p2p_inter.latency
    p2p = link_scaling.message_bytes(cell) / here.p2p_inter.bandwidth + here.p2p_inter.latency
    assert p2p / forward == pytest.approx(modelled_p2p / scale.modelled_forward_seconds)
    gradient = fmean(link_scaling.gradient_bytes(cell, 4)) / here.all_reduce_intra.bandwidth
    modelled_gradient = fmean(there.gradient_bytes) / there.links.all_reduce_intra.bandwidth
    assert gradient / forward == pytest.approx(modelled_gradient / scale.modelled_forward_seconds)


@pytest.mark.parametrize(("max_lag", "status"), [(0.0, Status.FAILED), (1.0, Status.OK)])
def test_an_emulated_run_counts_only_if_its_ranks_keep_up(
    planned: Plan, max_lag: float, status: Status
) -> None:
    job = TINY.replace("virtual", "emulate")
    (block,) = planned(f"{job} method=dapple wandb.mode=disabled max_lag={max_lag}").blocks
    (record,) = run_block(block, lambda record, name: None)
    assert record.status is status, record.cause
    assert 0 < record.metrics["late_share"] < 1
    if status is Status.FAILED:
        assert record.cause is not None
        assert record.cause.kind == "lag"
        assert f"{record.metrics['late_share']:.1%} of its time, max_lag=0 " in record.cause.message
        assert "samples_per_s" not in record.metrics


def test_wandb_gets_the_rows_of_rank_logs_and_the_record_says_where(
    records: list[Record], block: Block, store: Store
) -> None:
    assert block.settings.wandb.mode == "offline", "ranks log to wandb by default"
    for record in records:
        assert record.wandb["state"] == "offline", record.wandb
        folder = store.attempt(record.cell, record.attempt) / record.wandb["directory"]
        (run,) = folder.glob("*.wandb")
        assert f"{record.cell}-a{record.attempt}" in run.name
        assert run.stat().st_size > 1000


def test_wandb_gets_the_picture_and_the_trace_of_one_iteration(records: list[Record], store: Store) -> None:
    for record in records:
        folder = store.attempt(record.cell, record.attempt) / record.wandb["directory"]
        reading = read_offline(next(folder.glob("*.wandb")))
        assert reading.document is not None
        picture = reading.document["summary"]["timeline"]
        assert picture["_type"] == "image-file"
        assert (folder / "files" / picture["path"]).read_bytes().startswith(b"\x89PNG")
        assert not [name for name in reading.steps if name.startswith("timeline")], "a picture is no metric"
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        assert {event["pid"] for event in events} == {0, 1}


@pytest.fixture
def unlogged(records: list[Record]) -> Record:
    """A finished record, to be published again into a fresh folder."""
    return replace(records[0], attempt=77)


def test_a_broken_wandb_breaks_nothing_and_the_record_says_what_happened(
    unlogged: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    def broken(**_: object) -> None:
        raise wandb.errors.CommError("the service is gone")

    monkeypatch.setattr(wandb, "init", broken)
    entry = wandb_sink.publish(unlogged, [{"loss": 1.0}], tmp_path, WandbSettings(mode="offline"))
    assert entry["state"] == "broken"
    assert "the service is gone" in entry["error"]
    replace(unlogged, wandb=entry).document()


@pytest.mark.parametrize("step", ["init", "log", "finish"])
def test_a_wandb_that_hangs_is_given_up_for_good(
    unlogged: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its real service is stopped, so that the call waits for an answer that never comes."""
    import wandb

    offline = WandbSettings(mode="offline")
    monkeypatch.setattr(wandb_sink, "PATIENCE_S", 6.0)
    monkeypatch.setattr(wandb_sink, "_given_up", [])
    wandb.setup()
    stopped: list[psutil.Process] = []

    def stop() -> None:
        for child in psutil.Process().children(recursive=True):
            if child.name().startswith("wandb"):
                child.suspend()
                stopped.append(child)

    owner = wandb if step == "init" else wandb.Run
    real = getattr(owner, step)
    monkeypatch.setattr(owner, step, lambda *a, **k: (stop(), real(*a, **k))[1])
    begun = time.monotonic()
    rows = [{"loss": 1.0}]
    first, second = (
        wandb_sink.publish(replace(unlogged, attempt=k), rows, tmp_path, offline) for k in (78, 79)
    )
    assert time.monotonic() - begun < 2 * wandb_sink.PATIENCE_S
    assert stopped
    assert (first["state"], second["state"]) == ("broken", "broken")
    assert "had not finished" in first["error"]
    assert second["error"].startswith("switched off: ")
    psutil.wait_procs(stopped, timeout=10)
    assert not any(child.is_running() for child in stopped)
    with contextlib.suppress(Exception):
        wandb.teardown()  # other tests start a service of their own


def test_a_wandb_that_takes_long_to_fail_is_not_asked_again(
    unlogged: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> str:
        time.sleep(0.2)
        raise TimeoutError("no answer")

    monkeypatch.setattr(wandb_sink, "_given_up", [])
    monkeypatch.setattr(wandb_sink, "IMPATIENCE_S", 0.1)
    monkeypatch.setattr(wandb_sink, "_write", slow)
    first, second = (wandb_sink.publish(unlogged, [], tmp_path, WandbSettings(mode="offline")) for _ in "ab")
    assert first["error"] == "TimeoutError: no answer"
    assert second["error"].startswith("switched off: wandb took 0 s to fail: TimeoutError")


def test_wandb_may_not_move_to_another_folder_in_silence(unlogged: Record, tmp_path: Path) -> None:
    (tmp_path / "wandb").write_text("in the way: even root cannot make a folder here")
    entry = wandb_sink.publish(unlogged, [], tmp_path, WandbSettings(mode="offline"))
    assert entry["state"] == "broken"


def test_online_without_a_key_or_a_server_is_written_offline(
    unlogged: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_sink, "_why_offline", lambda: "server not reachable")
    entry = wandb_sink.publish(unlogged, [{"loss": 1.0}], tmp_path, WandbSettings(mode="online"))
    assert (entry["state"], entry["error"]) == ("offline", "server not reachable")


def test_a_defect_of_ours_fails_the_blocks_cells_with_its_traceback(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(virtual, "links_of", broken)
    (one,) = planned(f"{TINY} backend.links=as_is wandb.mode=disabled").blocks
    (record,) = run_block(one, lambda *_: None)
    assert record.status is Status.FAILED
    assert record.cause is not None
    assert record.cause.message == "KeyError: 'surprise'"
    assert "Traceback" in str(record.cause.traceback)


Run = Callable[..., list[RunResult]]


@pytest.fixture
def ranks_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., dict[str, Any]]], None]:
    """Change how virtual ranks are run: a function of (jobs, options) gives further options."""

    def change(more: Callable[..., dict[str, Any]]) -> None:
        run: Run = virtual.run_jobs
        monkeypatch.setattr(
            virtual, "run_jobs", lambda jobs, **options: run(jobs, **{**options, **more(jobs, options)})
        )

    return change


@pytest.mark.parametrize(
    ("phase", "fault", "statuses", "kind"),
    [
        ("measure", "device_memory", ["oom", "ok"], "memory"),
        ("measure", "memory", ["failed", "ok"], "memory"),
        ("measure", "kill", ["failed", "ok"], "signal"),
        ("measure", "raise", ["failed", "ok"], "exception"),
        ("time", "device_memory", ["oom", "ok"], "memory"),
        ("time", "raise", ["failed", "ok"], "exception"),
    ],
)
def test_a_cell_that_fails_in_either_phase_leaves_the_others(
    phase: str,
    fault: str,
    statuses: list[str],
    kind: str,
    planned: Plan,
    ranks_of: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(jobs: Sequence[Job], options: dict[str, Any]) -> dict[str, Any]:
        now = "time" if "costs" in options else "measure"
        break_ranks(monkeypatch, *([Fault(kind=fault, rank=1, method="gpipe")] if now == phase else []))
        return {}

    ranks_of(broken)
    tiny = f"{TINY} wandb.mode=disabled"
    (one,) = planned(f"{tiny} method=gpipe", f"{tiny} method=dapple").blocks
    records = run_block(one, lambda *_: None)
    assert [record.status for record in records] == statuses
    cause = records[0].cause
    assert cause is not None
    assert cause.kind == kind
    assert cause.message.startswith("rank 1")


def test_a_cell_whose_training_breaks_down_leaves_those_with_other_learning_rates(planned: Plan) -> None:
    tiny = f"{TINY} method=dapple wandb.mode=disabled"
    (one,) = planned(*(f"{tiny} learning_rate={rate}" for rate in ("1e30", "1e-4", "1e-3"))).blocks
    assert [record.status for record in run_block(one, lambda *_: None)] == ["failed", "ok", "ok"]


def test_ranks_that_disagree_with_the_simulator_have_failed(
    planned: Plan, ranks_of: Callable[..., None]
) -> None:
    """Here because they count one part in a million more than the simulator is told."""
    ranks_of(
        lambda jobs, options: {
            "costs": {one: seconds * (1 + 1e-6) for one, seconds in options.get("costs", {}).items()} or None
        }
    )
    (one,) = planned(f"{TINY} wandb.mode=disabled").blocks
    (record,) = run_block(one, lambda *_: None)
    assert (record.status, record.metrics) == (Status.FAILED, {})
    assert record.cause is not None
    assert record.cause.kind == "self_check"
    assert re.fullmatch(
        r"the ranks' clocks say [\d.e-]+ s, the simulator [\d.e-]+ s for the same costs and links: "
        r"[\d.]+e-07 apart, allowed is 1e-09",
        record.cause.message,
    )


def test_a_virtual_record_says_what_operations_cost_and_how_sure_its_time_is(records: list[Record]) -> None:
    one, other = records
    for record in records:
        kinds = {cost["kind"] for cost in record.costs}
        assert kinds == {"F", "B", "STEP"}
        assert all(cost["count"] >= 2 and cost["seconds"] > 0 for cost in record.costs)
        metrics = record.metrics
        assert metrics["samples_per_s_low"] < metrics["samples_per_s"] < metrics["samples_per_s_high"]
        assert len(metrics["bootstrap_seconds"]) == DRAWS
    ratio, low, high = bootstrap_ratio(one.metrics, other.metrics) or (0, 0, 0)
    assert ratio == pytest.approx(one.metrics["samples_per_s"] / other.metrics["samples_per_s"])
    assert 0 < low < ratio < high


def test_the_same_operations_in_two_orders_take_the_same_time(planned: Plan, tmp_path: Path) -> None:
    jobs = []
    for name, row in (("apart", "F0 F1 F2 F3 B0 B1 B2 B3"), ("turns", "F0 B0 F1 B1 F2 B2 F3 B3")):
        path = tmp_path / f"{name}.txt"
        path.write_text(" ".join(f"{action}@0d" for action in row.split()) + "\n")
        tiny = TINY.replace("depth=2 micro_batches=2", "depth=1 micro_batches=4")
        jobs.append(f"{tiny} method.name=file:{path} method=own wandb.mode=disabled")
    (block,) = planned(*jobs).blocks
    apart, turns = run_block(block, lambda *_: None)
    assert (apart.status, turns.status) == (Status.OK, Status.OK), (apart.cause, turns.cause)
    assert apart.costs == turns.costs
    assert apart.metrics["samples_per_s"] == pytest.approx(turns.metrics["samples_per_s"], rel=1e-12)


def test_a_schedule_of_ones_own_with_more_micro_batches_than_devices_runs(
    planned: Plan, tmp_path: Path
) -> None:
    path = tmp_path / "own.txt"
    path.write_text("F0@0d F1@0d F2@0d B0@0d B1@0d B2@0d\nF0@1d B0@1d F1@1d B1@1d F2@1d B2@1d\n")
    tiny = TINY.replace("micro_batches=2", "micro_batches=3")
    (one,) = planned(f"{tiny} method.name=file:{path} method=own wandb.mode=disabled").blocks
    (record,) = run_block(one, lambda *_: None)
    assert record.status is Status.OK, record.cause


def test_a_simulated_cell_is_logged_where_wandb_is_asked_for(planned: Plan) -> None:
    for mode, state in (("null", "off"), ("offline", "offline")):
        (one,) = planned(f"backend=simulate depth=4 rerun=true wandb.mode={mode}").blocks
        (record,) = run_block(one, lambda *_: None)
        assert record.wandb["state"] == state
        assert Store(one.settings.results).read(record.cell, record.attempt).wandb == record.wandb  # type: ignore[union-attr]
