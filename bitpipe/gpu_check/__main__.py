"""``python -m bitpipe.gpu_check``: one GPU, under four minutes; without a GPU one line and status 0."""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from bitpipe.gpu_check import fit, report, staged_ranks
from bitpipe.gpu_check.chunks import ChunkTime, time_chunks
from bitpipe.gpu_check.report import Check
from bitpipe.gpu_check.row import RowTimes, measure_row
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.runtime.device import Device, Gpu, Host, obstacle
from bitpipe.schedule import ScheduleSpec
from bitpipe.simulate import conf, predict
from bitpipe.simulate.predict import Prediction

ROOT = Path(__file__).resolve().parents[2]
UTILISATION = 0.40
GAP = 0.05
MEMORY = 0.05
SIZES = (("bert_64", 4), ("gpt_96", 1))
TINY = (("bert_tiny", 4), ("gpt_tiny", 1))


@dataclass(kw_only=True)
class Findings:
    """All that the sections found."""

    checks: list[Check] = field(default_factory=list)
    chunks: list[ChunkTime] = field(default_factory=list)
    rows: dict[str, RowTimes] = field(default_factory=dict)

    def add(self, check: Check) -> None:
        self.checks.append(check)
        print(check, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all sections; 0 if every check passed or there is no GPU, 1 if one missed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m bitpipe.gpu_check", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results" / "gpu_check", help="folder of the report"
    )
    parser.add_argument("--cluster", help="cluster file that describes the device; by default by its name")
    parser.add_argument("--cpu", action="store_true", help="try the script on the CPU with tiny models")
    options = parser.parse_args(arguments)
    reason = obstacle()
    if reason is not None and not options.cpu:
        print(f"gpu-check: nothing to check, {reason}")
        return 0
    device: Device = Host() if options.cpu else Gpu()
    if options.cpu:
        torch.set_num_threads(1)
    try:
        cluster = conf.cluster(options.cluster) if options.cluster else fit.cluster_of(device.name)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    begun = time.monotonic()
    print(f"gpu-check on {device.name}, torch {torch.__version__}, peak of {cluster.device.name}", flush=True)
    findings = Findings()
    if not options.cpu:
        findings.add(cuda_tests())
    check_staged(device, findings)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        for name, micro_batch_size in TINY if options.cpu else SIZES:
            check_model(conf.model(name), micro_batch_size, device, cluster, findings, few=options.cpu)
    finally:
        dist.destroy_process_group()
    finish(options.out, device, cluster, findings, time.monotonic() - begun)
    return 0 if all(check.passed for check in findings.checks) else 1


def cuda_tests() -> Check:
    """The tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "tests/runtime/test_cuda.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    last = (ran.stdout.strip().splitlines() or ["no output"])[-1]
    if ran.returncode:
        print(ran.stdout, file=sys.stderr)
    return Check(name="CUDA tests", value=last, bound="all pass", passed=ran.returncode == 0)


def check_staged(device: Device, findings: Findings) -> None:
    """Four ranks on this device."""
    agreement = staged_ranks.compare(device)
    findings.add(
        Check(
            name=f"{agreement.ranks} ranks share the device, staged transport, float64 gradients",
            value=f"differ by {max(agreement.difference, agreement.loss_difference):.1e}",
            bound=f"at most {staged_ranks.BOUND:.0e} of the largest",
            passed=agreement.holds,
        )
    )


def check_model(
    model: ModelConfig,
    micro_batch_size: int,
    device: Device,
    cluster: Cluster,
    findings: Findings,
    *,
    few: bool = False,
) -> None:
    """Chunk timings, then one device's row of BitPipe with D=8 and N=8; ``few`` repetitions."""
    title = f"{model.name} B={micro_batch_size}"
    times = list(time_chunks(model, micro_batch_size, device, repeats=2 if few else 20))
    findings.chunks += times
    largest = max((t for t in times if not t.head), key=lambda t: t.layers)
    utilisation = largest.utilisation(cluster.device.peak_flops)
    findings.add(
        Check(
            name=f"{title}, MFU of a chunk of {largest.layers} layers, {largest.precision}",
            value=f"{utilisation:.1%} ({1e3 * largest.forward:.2f} + {1e3 * largest.backward:.2f} ms)",
            bound=f"at least {UTILISATION:.0%}",
            passed=utilisation >= UTILISATION,
        )
    )
    _tidy()
    job = row_job(model, micro_batch_size)
    predicted = predict(job, cluster, conf.calibration("physical"))
    number, peak = fullest(predicted)
    if peak > 0.9 * cluster.device.memory_bytes:
        where = f"the prediction of {peak / 2**30:.0f} GiB leaves no room on this device"
        findings.add(Check(name=f"{title}, device {number}'s row", value="not run", bound=where, passed=True))
        return
    row = measure_row(job, number, device, pairs=1 if few else 5)
    findings.rows[model.name] = row
    findings.add(
        Check(
            name=f"{title}, interpreter's gap over back-to-back kernels (device {number} of BitPipe)",
            value=f"{row.gap:+.1%} of {1e3 * min(row.back_to_back):.0f} ms",
            bound=f"at most {GAP:.0%}",
            passed=row.gap <= GAP,
        )
    )
    difference = row.peak_bytes / peak - 1
    findings.add(
        Check(
            name=f"{title}, peak memory of device {number}",
            value=f"{row.peak_bytes / 2**30:.2f} GiB, {difference:+.1%} of the predicted {peak / 2**30:.2f}",
            bound=f"within {MEMORY:.0%}",
            passed=abs(difference) <= MEMORY,
        )
    )
    _tidy()


def row_job(model: ModelConfig, micro_batch_size: int, precision: str = "bf16") -> Job:
    """BitPipe with D=8 and N=8."""
    return Job(
        schedule=ScheduleSpec(method="bitpipe", depth=8, micro_batches=8),
        width=1,
        micro_batch_size=micro_batch_size,
        sync="none",
        layout="sequential",
        model=model,
        precision=precision,
    )


def fullest(predicted: Prediction) -> tuple[int, float]:
    """(device, bytes) of the predicted fullest device, with fused attention."""
    peaks = [memory.peak for memory in predicted.memory_with("fused")]
    rank = max(range(len(peaks)), key=peaks.__getitem__)
    return predicted.costs.layout.places[rank][1], peaks[rank]


def finish(out: Path, device: Device, cluster: Cluster, findings: Findings, seconds: float) -> None:
    """Fit the calibration, write it and the report, and read the calibration back."""
    name = "_".join(_words(device.name))
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    fitted = fit.fit(findings.chunks, list(findings.rows.values()), cluster, name)
    path = folder / f"{name}.yaml"
    fit.write(fitted.calibration, path)
    worst = max(abs(error) for error in fitted.errors)
    findings.add(
        Check(
            name=f"calibration {path.name} for the simulator",
            value=f"explains {len(fitted.errors)} timings within {worst:.1%}",
            bound="is read back as written",
            passed=replace(conf.calibration(str(path)), fitted=()) == replace(fitted.calibration, fitted=()),
        )
    )
    written = report.write(
        folder,
        device.name,
        seconds,
        findings.checks,
        torch=torch.__version__,
        cluster=cluster.name,
        chunks=[asdict(chunk) for chunk in findings.chunks],
        rows={model: asdict(row) for model, row in findings.rows.items()},
        calibration_errors=fitted.errors,
    )
    print(f"{seconds:.0f} s, written to {written.parent}")


def _words(text: str) -> Iterator[str]:
    for word in text.lower().replace("-", " ").split():
        yield "".join(letter for letter in word if letter.isalnum())


def _tidy() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
