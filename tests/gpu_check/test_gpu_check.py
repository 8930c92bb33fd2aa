"""The script for one GPU, tried on the CPU with small models: all but CUDA itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bitpipe.errors import InputError
from bitpipe.gpu_check import __main__ as gpu_check
from bitpipe.gpu_check import fit, staged_ranks, steps
from bitpipe.gpu_check.chunks import ChunkTime, time_chunk
from bitpipe.gpu_check.row import Row, RowTimes, measure_row
from bitpipe.models import ModelConfig, arithmetic
from bitpipe.runtime import device as cuda
from bitpipe.schedule import Kind
from bitpipe.simulate import conf, predict

CPU = cuda.Host()
SMALL = ModelConfig(name="small", family="gpt", layers=16, heads=2, hidden=32, sequence=16, vocabulary=64)


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_without_a_gpu_it_says_so_in_one_line_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_check, "obstacle", lambda: "this torch is built without CUDA")
    assert gpu_check.main(["--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("gpu-check: nothing to check, this torch is built without CUDA\n", "")
    assert not list(tmp_path.iterdir())


def test_an_unknown_device_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert gpu_check.main(["--cpu", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("device=cpu: no cluster file describes it (known: ")
    assert err.count("\n") == 1


def test_staged_ranks_agree_with_one_process() -> None:
    agreement = staged_ranks.compare(CPU, SMALL)
    assert agreement.ranks == 4
    assert agreement.difference <= 1e-13
    assert agreement.holds
    assert not replace(agreement, difference=1e-6).holds


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_row_holds_what_is_predicted(alone: None, family: str) -> None:
    job = steps.row_job(replace(SMALL, family=family), 2)
    predicted = predict(job, conf.cluster("laptop"), conf.calibration("physical"))
    number, peak = steps.fullest(predicted)
    row = measure_row(job, number, CPU, pairs=1)
    assert row.peak_bytes == pytest.approx(peak, rel=0.03)
    assert row.parameters == predicted.costs.resident_parameters[number]
    assert len(row.interpreted) == len(row.back_to_back) == 1


def test_a_row_runs_all_its_actions(alone: None) -> None:
    row = Row(steps.row_job(SMALL, 2), 3, CPU)
    before = {group: flat.checksum() for group, flat in row.gradients.flats.items()}
    row.interpret()
    spans = row.trainer.spans
    compute = [at for at, action in enumerate(row.plan.actions) if action.is_compute]
    assert len(compute) == 8 * 2 * 2, "micro-batches × chunks, forward and backward"
    assert all(spans[at] is not None for at in compute)
    assert row.plan.actions[-1].kind is Kind.STEP
    assert all(flat.checksum() != before[group] for group, flat in row.gradients.flats.items())


def test_the_gap_is_the_median_over_pairs() -> None:
    row = RowTimes(
        interpreted=(1.1, 2.04, 9.0), back_to_back=(1.0, 2.0, 3.0), step=0.0, parameters=1, peak_bytes=1
    )
    assert row.gap == pytest.approx(0.1)


def synthetic(layers: int, head: bool, rate: float, head_rate: float, overhead: float) -> ChunkTime:
    model = conf.model("bert_64")
    layer_flops = layers * arithmetic.layer_forward_flops(model, 4)
    head_flops = arithmetic.head_forward_flops(model, 4) if head else 0
    once = layer_flops / rate + head_flops / head_rate
    return ChunkTime(
        model="bert_64",
        micro_batch_size=4,
        precision="bf16",
        layers=layers,
        head=head,
        forward=once + overhead,
        backward=2 * once + overhead,
        layer_flops=layer_flops,
        head_flops=head_flops,
    )


def test_a_calibration_recovers_the_rates_behind_the_timings(tmp_path: Path) -> None:
    h200 = fit.cluster_of("NVIDIA H200")
    peak = h200.device.peak_flops
    times = [
        synthetic(layers, head, 0.5 * peak, 0.6 * peak, 1e-4)
        for layers, head in ((1, False), (2, False), (4, False), (1, True))
    ]
    row = RowTimes(
        interpreted=(1.0,), back_to_back=(1.0,), step=0.010, parameters=1_000_000_000, peak_bytes=1
    )
    found = fit.fit(times, [row], h200, "h200")
    assert max(map(abs, found.errors)) < 1e-6
    calibration = found.calibration
    assert calibration.compute_efficiency == pytest.approx(0.5)
    assert calibration.head_efficiency == pytest.approx(0.6)
    assert calibration.op_overhead == pytest.approx(1e-4)
    assert calibration.optimizer_bytes == pytest.approx(48.0), "10 ms for 10⁹ parameters at 4.8 TB/s"
    path = tmp_path / "h200.yaml"
    fit.write(calibration, path)
    assert conf.calibration(str(path)) == calibration
    job = steps.row_job(conf.model("bert_64"), 4)
    assert predict(job, h200, conf.calibration(str(path))).calibrated


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A800-SXM4-80GB", "a800"),
    ],
)
def test_a_gpu_is_found_among_the_clusters(name: str, cluster: str) -> None:
    assert fit.cluster_of(name).name == cluster


def test_an_unknown_gpu_has_no_peak() -> None:
    with pytest.raises(InputError, match="no cluster file describes it"):
        fit.cluster_of("NVIDIA GeForce GTX 1080")


def test_utilisation_counts_three_forwards() -> None:
    time = time_chunk(SMALL, 2, layers=2, head=True, device=CPU, repeats=2)
    assert time.layer_flops == 2 * arithmetic.layer_forward_flops(SMALL, 2)
    flops = 3 * (time.layer_flops + time.head_flops)
    assert time.utilisation(1e9) == pytest.approx(flops / (time.forward + time.backward) / 1e9)
    assert min(time.forward, time.backward) > 0


FAILURES = {
    "raises": "raise SystemExit('no such kernel')",
    "hangs": "import time; time.sleep(600)",
    "dies": "import os; os.kill(os.getpid(), 9)",
    "leaves nothing": "",
    "leaves half a file": "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('{')",
}
GOOD = """
import json, pathlib, sys
check = {"name": pathlib.Path(sys.argv[1]).stem, "value": "1", "bound": "any", "passed": True}
document = {"checks": [check], "chunks": [], "rows": {}, "calibration_errors": []}
pathlib.Path(sys.argv[1]).write_text(json.dumps(document))
"""


@pytest.mark.parametrize(
    ("failing", "how"),
    [*((step.name, "raises") for step in steps.STEPS), *(("equality", how) for how in FAILURES)],
)
def test_whichever_step_fails_the_report_is_complete(failing: str, how: str, tmp_path: Path) -> None:
    """Every step's process is played by a line of Python, one of which fails."""

    def command(step: steps.Step) -> list[str]:
        text = FAILURES[how] if step.name == failing else GOOD
        # Without site: a bare interpreter starts in a few milliseconds.
        return [sys.executable, "-S", "-I", "-c", text, str(tmp_path / "steps" / f"{step.name}.json")]

    (tmp_path / "steps").mkdir()
    hangs = how == "hangs"
    wanted = [replace(step, limit=1.0 if hangs and step.name == failing else 60.0) for step in steps.STEPS]
    assert gpu_check.check(wanted, command, tmp_path, {"device": "fake"}) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report["steps"]) == [step.name for step in steps.STEPS]
    verdicts = {check["name"]: check["passed"] for check in report["checks"]}
    assert verdicts == {step.name: step.name != failing for step in steps.STEPS}


def test_the_report_is_written_before_the_next_step_starts(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    seen = []

    def command(step: steps.Step) -> list[str]:
        path = tmp_path / "report.json"
        seen.append(list(json.loads(path.read_text())["steps"]) if path.exists() else [])
        return [sys.executable, "-S", "-I", "-c", GOOD, str(tmp_path / "steps" / f"{step.name}.json")]

    names = [step.name for step in steps.STEPS]
    assert gpu_check.check(steps.STEPS, command, tmp_path, {}) == 0
    assert seen == [names[:number] for number in range(len(names))]


def test_all_steps_together_stay_under_four_minutes() -> None:
    assert sum(step.limit for step in steps.STEPS) < 240


@pytest.mark.slow
def test_the_whole_script_runs_on_a_cpu(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gpu_check.main(["--cpu", "--cluster", "laptop", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "cpu" / "report.json").read_text())
    assert {step: end["ended"] for step, end in report["steps"].items()} == {
        step.name: "ok" for step in steps.STEPS if not step.needs_gpu
    }
    calibration = conf.calibration(str(tmp_path / "cpu" / "cpu.yaml"))
    assert calibration.name == "cpu"
