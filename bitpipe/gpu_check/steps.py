"""The steps of the GPU check, by value: what would be missed most if the minutes ran out comes first.

Every step runs in a process of its own under its own time limit and leaves a file with what it found, so
one that fails, hangs or takes the process down hides nothing that comes after it.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bitpipe.checkout import ROOT
from bitpipe.cluster import Cluster
from bitpipe.gpu_check import fit, staged_ranks
from bitpipe.gpu_check.chunks import ChunkTime, time_chunk
from bitpipe.gpu_check.report import Check
from bitpipe.gpu_check.row import RowTimes, measure_row
from bitpipe.gpu_check.tokens import RandomTokens
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.runtime.block import run_block
from bitpipe.runtime.device import Device
from bitpipe.runtime.target import Target
from bitpipe.schedule import ScheduleSpec
from bitpipe.simulate import conf, predict
from bitpipe.simulate.predict import Prediction

UTILISATION = 0.40
GAP = 0.05
MEMORY = 0.05
SIZES: dict[str, tuple[int, ...]] = {"bert_64": (4, 1, 2, 8), "gpt_96": (1, 2)}
"""Micro-batch sizes by model, the paper's first."""
TINY: dict[str, tuple[int, ...]] = {"bert_tiny": (4,), "gpt_tiny": (1,)}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What is checked.

    Attributes:
        device: computes.
        cluster: describes it.
        few: tiny models and few repetitions, to try the script on a CPU.
        folder: of the report; a step finds there what earlier steps found.
    """

    device: Device
    cluster: Cluster
    few: bool
    folder: Path

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        return TINY if self.few else SIZES


@dataclass(kw_only=True)
class Found:
    """What a step found, or all steps together."""

    checks: list[Check] = field(default_factory=list)
    chunks: list[ChunkTime] = field(default_factory=list)
    rows: dict[str, RowTimes] = field(default_factory=dict)
    calibration_errors: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        name: of its file, and on the command line.
        limit: seconds until it is stopped.
        run: finds something; ``earlier`` is what the steps before it found.
        needs_gpu: whether it is left out on a CPU.
    """

    name: str
    limit: float
    run: Callable[[Bench, Found], Found]
    needs_gpu: bool = False


def cuda_tests(bench: Bench, earlier: Found) -> Found:
    """The tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/runtime/test_cuda.py"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (ran.stdout.strip().splitlines() or ["no output"])[-1]
    if ran.returncode:
        print(ran.stdout, file=sys.stderr)
    return Found(checks=[Check("CUDA tests", value=last, bound="all pass", passed=ran.returncode == 0)])


def equality(bench: Bench, earlier: Found) -> Found:
    """Four ranks on this device: gradients as one process computes them, and no deadlock."""
    agreement = staged_ranks.compare(bench.device)
    check = Check(
        f"{agreement.ranks} ranks share the device, staged transport, float64 gradients",
        value=f"differ by {max(agreement.difference, agreement.loss_difference):.1e}",
        bound=f"at most {staged_ranks.BOUND:.0e} of the largest",
        passed=agreement.holds,
    )
    return Found(checks=[check])


def packed_block(bench: Bench, earlier: Found) -> Found:
    """Two jobs in rotation on the same ranks: both run, and neither counts the other's memory."""
    first = replace(staged_ranks.job_of(), precision="fp32")
    jobs = [first, replace(first, schedule=ScheduleSpec(method="dapple", depth=4, micro_batches=8))]
    alone = [_peaks([job], bench)[0] for job in jobs]
    together = _peaks(jobs, bench)
    checks = []
    for job, lone, packed in zip(jobs, alone, together, strict=True):
        difference = packed / lone - 1
        checks.append(
            Check(
                f"{job.schedule.method} packed with another job, peak memory of its fullest rank",
                value=f"{difference:+.1%} of {lone / 2**20:.1f} MiB alone",
                bound=f"within {MEMORY:.0%}",
                passed=abs(difference) <= MEMORY,
            )
        )
    return Found(checks=checks)


def _peaks(jobs: Sequence[Job], bench: Bench) -> list[float]:
    """Per job, the most bytes of activations that a rank held."""
    links = [staged_ranks.free_links()] * len(jobs)
    target = Target(device=bench.device.place.type, transport="staged")
    results = run_block(jobs, clock="wall", links=links, data=RandomTokens(), target=target, limit=60.0)
    for result in results:
        if result.status != "ok":
            raise RuntimeError(result.cause.message if result.cause else result.status)
    return [
        float(max(report.bytes["peak_activation_bytes"] for report in result.reports)) for result in results
    ]


def chunk_rates(name: str) -> Callable[[Bench, Found], Found]:
    """Times of chunks of 1, 2 and 4 layers and of the head, per micro-batch size of a model."""

    def run(bench: Bench, earlier: Found) -> Found:
        model = conf.model(_tiny(name) if bench.few else name)
        found = Found()
        for number, size in enumerate(bench.sizes[model.name]):
            # All lengths for the paper's micro-batch, for the others what tells how the rate depends on it.
            shapes = (
                ((1, False), (2, False), (4, False), (1, True)) if number == 0 else ((2, False), (1, True))
            )
            for layers, head in shapes:
                repeats = 2 if bench.few else 20
                found.chunks.append(
                    time_chunk(model, size, layers=layers, head=head, device=bench.device, repeats=repeats)
                )
                _tidy()
        first = [time for time in found.chunks if not time.head][2]
        utilisation = first.utilisation(bench.cluster.device.peak_flops)
        found.checks.append(
            Check(
                f"{model.name} B={first.micro_batch_size}, MFU of {first.layers} layers, {first.precision}",
                value=f"{utilisation:.1%} ({1e3 * first.forward:.2f} + {1e3 * first.backward:.2f} ms)",
                bound=f"at least {UTILISATION:.0%}",
                passed=utilisation >= UTILISATION,
            )
        )
        return found

    return run


def device_row(name: str) -> Callable[[Bench, Found], Found]:
    """The fullest device's row of BitPipe with D=8 and N=8: interpreter's gap, and memory."""

    def run(bench: Bench, earlier: Found) -> Found:
        model = conf.model(_tiny(name) if bench.few else name)
        size = bench.sizes[model.name][0]
        title = f"{model.name} B={size}"
        job = row_job(model, size)
        number, peak = fullest(predict(job, bench.cluster, conf.calibration("physical")))
        if peak > 0.9 * bench.cluster.device.memory_bytes:
            where = f"the prediction of {peak / 2**30:.0f} GiB leaves no room on this device"
            return Found(
                checks=[Check(f"{title}, device {number}'s row", value="not run", bound=where, passed=True)]
            )
        with _alone():
            row = measure_row(job, number, bench.device, pairs=1 if bench.few else 5)
        difference = row.peak_bytes / peak - 1
        gap = Check(
            f"{title}, interpreter's gap over back-to-back kernels (device {number} of BitPipe)",
            value=f"{row.gap:+.1%} of {1e3 * min(row.back_to_back):.0f} ms",
            bound=f"at most {GAP:.0%}",
            passed=row.gap <= GAP,
        )
        memory = Check(
            f"{title}, peak memory of device {number}",
            value=f"{row.peak_bytes / 2**30:.2f} GiB, {difference:+.1%} of the predicted {peak / 2**30:.2f}",
            bound=f"within {MEMORY:.0%}",
            passed=abs(difference) <= MEMORY,
        )
        return Found(checks=[gap, memory], rows={model.name: row})

    return run


def calibration(bench: Bench, earlier: Found) -> Found:
    """Fit what earlier steps timed, write the file for the simulator, and read it back."""
    if not earlier.chunks or not earlier.rows:
        missing = "chunks" if not earlier.chunks else "rows"
        check = Check("calibration", value="not written", bound=f"no {missing} were timed", passed=False)
        return Found(checks=[check])
    name = bench.folder.name
    fitted = fit.fit(earlier.chunks, list(earlier.rows.values()), bench.cluster, name)
    path = bench.folder / f"{name}.yaml"
    fit.write(fitted.calibration, path)
    worst = max(abs(error) for error in fitted.errors)
    check = Check(
        f"calibration {path.name} for the simulator",
        value=f"explains {len(fitted.errors)} timings within {worst:.1%}",
        bound="is read back as written",
        passed=replace(conf.calibration(str(path)), fitted=()) == replace(fitted.calibration, fitted=()),
    )
    return Found(checks=[check], calibration_errors=fitted.errors)


STEPS: Iterable[Step] = (
    Step(name="cuda_tests", limit=45, run=cuda_tests, needs_gpu=True),
    Step(name="equality", limit=30, run=equality),
    Step(name="packed_block", limit=40, run=packed_block),
    Step(name="chunks_bert", limit=30, run=chunk_rates("bert_64")),
    Step(name="chunks_gpt", limit=30, run=chunk_rates("gpt_96")),
    Step(name="row_bert", limit=25, run=device_row("bert_64")),
    Step(name="row_gpt", limit=25, run=device_row("gpt_96")),
    Step(name="calibration", limit=10, run=calibration),
)
"""Their limits come to less than four minutes."""


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


def _tiny(name: str) -> str:
    return f"{name.partition('_')[0]}_tiny"


@contextmanager
def _alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _tidy() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
