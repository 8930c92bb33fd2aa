"""The simulator against virtual runs, and virtual runs against themselves:
``python benchmarks/simulator_vs_virtual.py``.

Nine methods and variants train a small BERT on eight ranks, two nodes of four, as ``run.py`` runs them,
several times over while a busy loop on every core disturbs them. One row per method:

* ``simulator_error_percent``: how far the ranks' clocks and the simulator are apart for the same costs and
  links; two code paths, so anything but 0.0 is a defect (a run's own check allows 1e-9).
* the throughput over DAPPLE's, for BitPipe's variants over BitPipe's, in every repeat with its 95 %
  interval; how far the repeats are apart, and whether each lies inside every other's interval.

Before that, for comparison, what plain processor time says of the same operations in two orders on one rank,
FFFFFFFFBBBBBBBB and FBFBFBFB, each on its own: what the caches hold makes a difference of a few percent.
Costs that both share make none (a test holds them to that).
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.data import open_dataset
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.runtime.block import run_block
from bitpipe.runtime.clocks.pooling import iterations
from bitpipe.runtime.result import RunResult
from bitpipe.schedule import ScheduleSpec
from bitpipe.simulate import conf
from experiments.records.record import Record
from experiments.records.store import read_record
from experiments.running.bootstrap import bootstrap_ratio

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "results" / "bench" / "simulator_vs_virtual.csv"
DEPTH, MICRO_BATCHES = 8, 8
BASE, FULL = "dapple", "bitpipe"
VARIANTS = ("bitpipe_without_v", "bitpipe_without_e", "bitpipe_without_m")
METHODS = ("gpipe", BASE, "1f1b_int", "chimera", "mixpipe", FULL, *VARIANTS)
SAME_VARIANT, SAME_METHOD = 0.2, 2.0
"""Percent by which a variant's ratio to BitPipe and a method's to DAPPLE may differ between repeats."""


def orders(count: int) -> dict[str, float]:
    """Percent by which F, B and both cost more as FBFBFBFB than as FFFFFFFFBBBBBBBB, on one rank."""
    model = conf.model("bert_tiny")
    apart = [f"{kind}{m}@0d" for kind in "FB" for m in range(8)]
    turns = [f"{kind}{m}@0d" for m in range(8) for kind in "FB"]
    with tempfile.TemporaryDirectory() as folder:
        schedules = []
        for name, row in (("apart", apart), ("turns", turns)):
            file = Path(folder) / f"{name}.txt"
            file.write_text(" ".join(row) + "\n")
            schedules.append(ScheduleSpec(method=f"file:{file}", depth=1, micro_batches=8))
        found = _on_one_rank(schedules, model, count)
    off: dict[str, list[float]] = {"F": [], "B": [], "F+B": []}
    for each in list(zip(*map(iterations, found), strict=True))[2:]:  # in turn, so paired
        one, other = ({o.kind.value: median(seconds) for o, seconds in order.items()} for order in each)
        for name, ratios in off.items():
            ratios.append(
                sum(map(other.__getitem__, name.split("+"))) / sum(map(one.__getitem__, name.split("+")))
            )
    return {name: 100 * (median(ratios) - 1) for name, ratios in off.items()}


def _on_one_rank(schedules: Sequence[ScheduleSpec], model: ModelConfig, count: int) -> Sequence[RunResult]:
    jobs = [
        Job(
            schedule=schedule,
            width=1,
            micro_batch_size=4,
            sync="late",
            layout="sequential",
            model=model,
            iterations=count,
            measured=count - 2,
        )
        for schedule in schedules
    ]
    link = Link(bandwidth=1e9, latency=0.0)
    layout = RankLayout(name="sequential", width=1, depth=1, devices_per_node=1)
    links = Links(layout=layout, p2p_intra=link, p2p_inter=link, all_reduce_intra=link, all_reduce_inter=link)
    data = open_dataset(None, model)
    return run_block(jobs, clock="virtual", links=[links] * 2, data=data, watchdog=300.0)


def measured(count: int) -> dict[str, Record]:
    """The block of all methods, once, as the command line runs it."""
    with tempfile.TemporaryDirectory() as results:
        command = [
            *(sys.executable, ROOT / "run.py", f"method={','.join(METHODS)}", "model=bert_tiny"),
            *(f"depth={DEPTH}", f"micro_batches={MICRO_BATCHES}", "backend=virtual", f"results={results}"),
            *("cluster.nodes=2", "cluster.devices_per_node=4", f"iterations={count}"),
            *(
                f"measured={count - 2}",
                "hydra/launcher=local",
                "wandb.mode=disabled",
                "draw=false",
                "-m",
            ),
        ]
        done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
        records = [read_record(path) for path in Path(results).glob("cells/*/a1/record.json")]
    found = {_name(record): record for record in records}
    missing = [name for name in METHODS if name not in found or found[name].status != "ok"]
    if missing:
        causes = [str(found[name].cause and found[name].cause.message) for name in missing if name in found]
        raise SystemExit(f"{', '.join(missing)}: {'; '.join(causes) or done.stderr.strip()[-500:]}")
    return found


def _name(record: Record) -> str:
    """The method's file name, from what its cell is."""
    job = record.identity["job"]
    method = str(job["schedule"]["method"])
    if method != FULL:
        return method
    if job["schedule"]["placement"] == "cyclic":
        return "bitpipe_without_v"
    if job["sync"] == "late":
        return "bitpipe_without_e"
    return FULL if job["layout"] == "replica_aware" else "bitpipe_without_m"


def rows_of(repeats: Sequence[dict[str, Record]]) -> list[dict[str, Any]]:
    """One row per method."""
    rows = []
    for name in METHODS:
        base = FULL if name in VARIANTS else BASE
        ratios = [bootstrap_ratio(one[name].metrics, one[base].metrics) for one in repeats]
        known = [ratio for ratio in ratios if ratio is not None]
        values = [ratio for ratio, _, _ in known]
        inside = all(low - 1e-12 <= value <= high + 1e-12 for value in values for _, low, high in known)
        row: dict[str, Any] = {
            "method": name,
            "micro_batches": MICRO_BATCHES,
            "simulator_error_percent": round(
                100 * max(one[name].metrics["simulator_error"] for one in repeats), 4
            ),
            "over": base,
        }
        for number, (one, (ratio, low, high)) in enumerate(zip(repeats, known, strict=True), 1):
            row |= {
                f"virtual_ms_{number}": round(1e3 * one[name].metrics["iteration_seconds"], 3),
                f"ratio_{number}": round(ratio, 4),
                f"low_{number}": round(low, 4),
                f"high_{number}": round(high, 4),
            }
        apart = 100 * (max(values) / min(values) - 1)
        allowed = SAME_VARIANT if name in VARIANTS else SAME_METHOD
        row |= {"apart_percent": round(apart, 3), "inside": inside, "within": apart <= allowed}
        rows.append(row)
    return rows


def _burn() -> None:
    while True:
        pass


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep cores busy meanwhile."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=_burn, daemon=True) for _ in range(cores)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def main() -> int:
    """Run, print and write the table; fails if something lies outside its bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=18, help="per method, two of them to warm up")
    parser.add_argument(
        "--orders", type=int, default=40, help="iterations of the two orders; 0: leave it out"
    )
    parser.add_argument("--repeats", type=int, default=2, help="of the block")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="cores kept busy meanwhile")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    with busy(given.busy):
        if given.orders:
            off = orders(given.orders)
            print("FBFB… over FF…BB…:", ", ".join(f"{name} {value:+.2f} %" for name, value in off.items()))
        rows = rows_of([measured(given.iterations) for _ in range(given.repeats)])
    for row in rows:
        print("  ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    exact = all(row["simulator_error_percent"] == 0 for row in rows)
    return 0 if exact and all(row["within"] and row["inside"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
