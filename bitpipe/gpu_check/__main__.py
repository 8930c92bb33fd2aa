"""``python -m bitpipe.gpu_check``: one GPU, under four minutes; without a GPU one line and status 0."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError, choose
from bitpipe.gpu_check import fit, report
from bitpipe.gpu_check.chunks import ChunkTime
from bitpipe.gpu_check.report import Check
from bitpipe.gpu_check.row import RowTimes
from bitpipe.gpu_check.steps import STEPS, Bench, Found, Step
from bitpipe.runtime.device import Device, Gpu, Host, obstacle
from bitpipe.simulate import conf


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps; 0 if every check passed or there is no GPU, 1 if one missed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m bitpipe.gpu_check", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results" / "gpu_check", help="folder of the report"
    )
    parser.add_argument("--cluster", help="cluster file that describes the device; by default by its name")
    parser.add_argument("--cpu", action="store_true", help="try the script on the CPU with tiny models")
    parser.add_argument("--step", metavar="NAME", help="run one step in this process")
    options = parser.parse_args(arguments)
    reason = obstacle()
    if reason is not None and not options.cpu:
        print(f"gpu-check: nothing to check, {reason}")
        return 0
    try:
        bench = _bench(options)
        if options.step is not None:
            return run_here(steps()[choose("step", options.step, steps())], bench)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    device = bench.device.name
    print(
        f"gpu-check on {device}, torch {torch.__version__}, peak of {bench.cluster.device.name}", flush=True
    )
    own = sys.argv[1:] if arguments is None else arguments
    wanted = list(STEPS)
    if options.cpu:  # a trial of the script, on a machine that may be busy
        wanted = [replace(step, limit=20 * step.limit) for step in wanted if not step.needs_gpu]
    return check(
        wanted,
        lambda step: [sys.executable, "-m", "bitpipe.gpu_check", *own, "--step", step.name],
        bench.folder,
        {"device": device, "origin": "measured", "torch": torch.__version__, "cluster": bench.cluster.name},
    )


def steps() -> dict[str, Step]:
    return {step.name: step for step in STEPS}


def _bench(options: argparse.Namespace) -> Bench:
    device: Device = Host() if options.cpu else Gpu()
    cluster = conf.cluster(options.cluster) if options.cluster else fit.cluster_of(device.name)
    folder = options.out / "_".join(_letters(device.name))
    return Bench(device=device, cluster=cluster, few=options.cpu, folder=folder)


def check(
    wanted: Iterable[Step], command: Callable[[Step], Sequence[str]], folder: Path, about: dict[str, object]
) -> int:
    """Run the steps one after another, each in a process of its own, and keep the report up to date.

    Args:
        wanted: in their order.
        command: of a step's process, which leaves ``steps/<name>.json`` in ``folder``.
        folder: of the report.
        about: what the report says of the whole.
    """
    begun = time.monotonic()
    ended: dict[str, object] = {}
    for old in folder.glob("steps/*.json"):
        old.unlink()
    checks: list[Check] = []
    for step in wanted:
        started = time.monotonic()
        why = _run(command(step), step.limit)
        found = read(folder, step.name)
        if found is None or why:
            reason = why or "it left no result"
            failed = Check(step.name, value=reason, bound=f"a result within {step.limit:.0f} s", passed=False)
            print(failed, flush=True)
            checks += [*(found.checks if found else ()), failed]
        else:
            checks += found.checks
        ended[step.name] = {"seconds": time.monotonic() - started, "ended": why or "ok"}
        everything = all_found(folder)
        report.write(
            folder / "report.json",
            {
                **about,
                "seconds": time.monotonic() - begun,
                "steps": ended,
                "checks": checks,
                "chunks": everything.chunks,
                "rows": everything.rows,
                "calibration_errors": everything.calibration_errors,
            },
        )
    print(f"{time.monotonic() - begun:.0f} s, written to {folder}")
    return 0 if all(check.passed for check in checks) else 1


def _run(command: Sequence[str], limit: float) -> str:
    """Run a step's process; why it did not end well, or nothing."""
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"stopped after {limit:.0f} s"
    if process.returncode == 0:
        return ""
    return (errors.strip().splitlines() or [f"ended with status {process.returncode}"])[-1]


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a step with all the ranks that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run_here(step: Step, bench: Bench) -> int:
    """One step in this process; its file says what it found."""
    if bench.few:
        torch.set_num_threads(1)
    found = step.run(bench, all_found(bench.folder))
    for one in found.checks:
        print(one, flush=True)
    report.write(_file(bench.folder, step.name), vars(found))
    return 0


def _file(folder: Path, name: str) -> Path:
    return folder / "steps" / f"{name}.json"


def read(folder: Path, name: str) -> Found | None:
    """What a step found; None if it left nothing that can be read."""
    try:
        document = json.loads(_file(folder, name).read_text())
        return Found(
            checks=[Check(**one) for one in document["checks"]],
            chunks=[ChunkTime(**one) for one in document["chunks"]],
            rows={model: RowTimes(**one) for model, one in document["rows"].items()},
            calibration_errors=document["calibration_errors"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def all_found(folder: Path) -> Found:
    """What all steps so far found."""
    everything = Found()
    for step in STEPS:
        found = read(folder, step.name)
        if found is not None:
            everything.checks += found.checks
            everything.chunks += found.chunks
            everything.rows |= found.rows
            everything.calibration_errors = found.calibration_errors or everything.calibration_errors
    return everything


def _letters(text: str) -> Iterable[str]:
    for word in text.lower().replace("-", " ").split():
        yield "".join(letter for letter in word if letter.isalnum())


if __name__ == "__main__":
    sys.exit(main())
