"""The simulator against virtual runs: ``python benchmarks/simulator_vs_virtual.py``.

Eight ranks on two nodes of four train a small BERT by every method in rotation. The simulator gets
the links and the durations of operations, either those of the iteration that it is held against
(then two independent code paths must find the same time) or their means over the iterations just
before (then it predicts). Ratios are formed to DAPPLE; what slows all methods drops out of them.
The ranks share one core, because two virtual cores may be one real one, and then an operation's time
would depend on what the other ranks do just then. Their clocks are steady; ``--unsteady`` counts plain
processor time. Compare the errors with ``virtual_spread_percent``, how far a method's own iterations lie
apart, and ``pace_spread_percent``, how far the machine's speed wandered meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.data import open_dataset
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.runtime.block import run_block
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.result import RunResult
from bitpipe.schedule import ScheduleSpec
from bitpipe.schedule.costs import ListedCosts
from bitpipe.simulate.engine import simulate

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "simulator_vs_virtual.csv"
DEPTH, DEVICES_PER_NODE = 8, 4
WARM_UP = 2
BASE = "dapple"
PLAIN: dict[str, Any] = {"sync": "late", "layout": "sequential"}
FULL: dict[str, Any] = {"sync": "eager", "layout": "replica_aware"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpipe": ("gpipe", PLAIN),
    BASE: (BASE, PLAIN),
    "1f1b_int": ("1f1b_int", PLAIN),
    "chimera": ("chimera", FULL | {"layout": "sequential"}),
    "mixpipe": ("mixpipe", FULL),
    "bitpipe": ("bitpipe", FULL),
    "bitpipe_without_v": ("bitpipe", FULL | {"placement": "cyclic"}),
    "bitpipe_without_e": ("bitpipe", FULL | {"sync": "late"}),
    "bitpipe_without_m": ("bitpipe", FULL | {"layout": "sequential"}),
}
"""Name → method, and how it is run (as in the paper's comparison)."""
MODEL = ModelConfig(
    name="bert_tiny", family="bert", layers=32, heads=4, hidden=64, sequence=32, vocabulary=1024
)
# Against a chunk forward of about a millisecond: a twentieth inside a node, a quarter across.
NEAR = Link(bandwidth=1e9, latency=10e-6)
FAR = Link(bandwidth=1.25e8, latency=50e-6)


def job_of(name: str, micro_batches: int, iterations: int) -> Job:
    method, settings = METHODS[name]
    return Job(
        schedule=ScheduleSpec(
            method=method,
            depth=DEPTH,
            micro_batches=micro_batches,
            placement=settings.get("placement"),
        ),
        width=1,
        micro_batch_size=4,
        sync=settings["sync"],
        layout=settings["layout"],
        model=MODEL,
        precision="fp32",
        iterations=iterations,
        measured=1,
    )


def links_of(job: Job) -> Links:
    layout = RankLayout(name=job.layout, width=1, depth=DEPTH, devices_per_node=DEVICES_PER_NODE)
    return Links(layout=layout, p2p_intra=NEAR, p2p_inter=FAR, all_reduce_intra=NEAR, all_reduce_inter=FAR)


def simulated(result: RunResult, iterations: list[int]) -> float:
    """Seconds that the simulator finds with the mean durations of ``iterations``."""
    links = links_of(result.job)
    return simulate(result.program, ListedCosts(result.durations(iterations), result.size), links).makespan


def rows_of(micro_batches: int, results: dict[str, RunResult], window: int) -> list[dict[str, object]]:
    """One row per method. Two iterations warm up; each later one is predicted from ``window`` before it."""
    count = results[BASE].job.iterations
    later = range(WARM_UP + window, count)
    run = {name: statistics.fmean(r.seconds[i] for i in later) for name, r in results.items()}
    told = {
        name: statistics.fmean(simulated(r, list(range(i - window, i))) for i in later)
        for name, r in results.items()
    }
    rows: list[dict[str, object]] = []
    for name, result in results.items():
        own = max(abs(simulated(result, [i]) / result.seconds[i] - 1) for i in later)
        ratio, predicted = run[BASE] / run[name], told[BASE] / told[name]
        rows.append(
            {
                "method": name,
                "micro_batches": micro_batches,
                "iterations": len(later),
                "window": window,
                "own_durations_error_percent": float(f"{100 * own:.2g}"),
                "virtual_ms": round(1e3 * run[name], 3),
                "virtual_spread_percent": round(100 * _spread([result.seconds[i] for i in later]), 2),
                "pace_spread_percent": round(100 * _spread([result.paces[i] for i in later]), 2)
                if result.paces
                else "",
                "simulated_ms": round(1e3 * told[name], 3),
                "error_percent": round(100 * (told[name] / run[name] - 1), 2),
                f"virtual_speedup_over_{BASE}": round(ratio, 4),
                f"simulated_speedup_over_{BASE}": round(predicted, 4),
                "speedup_error_percent": round(100 * (predicted / ratio - 1), 2),
            }
        )
    return rows


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) / statistics.fmean(values)


def main() -> int:
    """Run, print and write the table; fails if a run's own durations do not give its time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=18, help="per method, two of them to warm up")
    parser.add_argument("--window", type=int, default=3, help="iterations that give the means")
    parser.add_argument("--unsteady", action="store_true", help="processor time as it is")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    data = open_dataset(None, MODEL)
    rows: list[dict[str, object]] = []
    with Pool(DEPTH) as pool:
        for micro_batches in (8, 16):
            jobs = [job_of(name, micro_batches, given.iterations) for name in METHODS]
            links = [links_of(job) for job in jobs]
            found = run_block(
                jobs,
                clock="virtual",
                links=links,
                data=data,
                steady=not given.unsteady,
                pool=pool,
                watchdog=120.0,
            )
            for name, result in zip(METHODS, found, strict=True):
                if result.cause is not None:
                    print(f"{name} N={micro_batches}: {result.cause.message}", file=sys.stderr)
                    return 1
            rows += rows_of(micro_batches, dict(zip(METHODS, found, strict=True)), given.window)
    for row in rows:
        print("  ".join(f"{name}={value}" for name, value in row.items()))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return 0 if all(float(str(row["own_durations_error_percent"])) <= 0.1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
