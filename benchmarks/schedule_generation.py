"""How fast schedules are made: ``python benchmarks/schedule_generation.py``.

Seconds of this process's own CPU time, the best of a few runs: generating the order, and with
lowering (communication, sync) and all static checks. Beside them torch.distributed.pipelining for
the schedules it has, at the same D, N and chunks: its order, and with its own lowering, which
inserts sends and receives; it has no checks to time.
"""

from __future__ import annotations

import csv
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from torch.distributed.pipelining import schedules as peer

from bitpipe.schedule import ScheduleSpec, check, generate, lower

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "schedule_generation.csv"
Row = dict[str, str | int | float]

# What it is, spec, the limits this project sets itself in seconds (order, all), repetitions.
OURS: list[tuple[str, ScheduleSpec, float | None, float | None]] = [
    ("concatenated", ScheduleSpec(method="bitpipe", depth=8, micro_batches=32), 0.05, 0.05),
    ("early forward", ScheduleSpec(method="bitpipe", depth=32, micro_batches=256, early_forward=True), 1, 2),
    ("unit", ScheduleSpec(method="bitpipe", depth=256, micro_batches=256), 1, 10),
]
OURS += [
    (method, ScheduleSpec(method=method, depth=depth, micro_batches=n), None, None)
    for method in ("1f1b_int", "bitpipe")
    for depth, n in ((8, 32), (32, 256))
]
OURS += [
    (
        "split backward",
        ScheduleSpec(method="bitpipe", depth=8, micro_batches=32, split_backward=True),
        None,
        None,
    )
]
PEERS = (
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleZBVZeroBubble",
    "ScheduleDualPipeV",
)


def main() -> int:
    """Time everything, print and write the table; exit status 1 if a limit is broken."""
    rows: list[Row] = []
    broken = 0
    for name, spec, order_limit, limit in OURS:
        order, everything = ours(spec)
        rows.append(
            {
                "library": "bitpipe",
                "schedule": f"{spec.method}: {name}" if name != spec.method else name,
                "depth": spec.depth,
                "micro_batches": spec.micro_batches,
                "order_cpu_seconds": round(order, 4),
                "order_limit": order_limit or "",
                "lowered_checked_cpu_seconds": round(everything, 4),
                "limit": limit or "",
            }
        )
        broken += order > (order_limit or order) or everything > (limit or everything)
    logging.disable(logging.INFO)
    for name in PEERS:
        for depth, n in ((8, 32), (32, 256)):
            rows.append(
                {
                    "library": "torch.distributed.pipelining",
                    "schedule": name.removeprefix("Schedule"),
                    "depth": depth,
                    "micro_batches": n,
                    "order_cpu_seconds": round(theirs(name, depth, n, lowered=False), 4),
                    "order_limit": "",
                    "lowered_checked_cpu_seconds": round(theirs(name, depth, n, lowered=True), 4),
                    "limit": "",
                }
            )
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    print("  ".join(key.ljust(width) for key, width in widths.items()))
    for row in rows:
        print("  ".join(str(row[key]).ljust(width) for key, width in widths.items()))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"{OUT.relative_to(OUT.parent.parent.parent)}; {broken} of {len(OURS)} over their limit")
    return 1 if broken else 0


def ours(spec: ScheduleSpec) -> tuple[float, float]:
    """CPU seconds of generating, and of generating, lowering and checking."""
    repeat = 3 if spec.depth < 256 else 1
    order = best(lambda: generate(spec), repeat)
    return order, best(lambda: check(lower(generate(spec), sync="eager", tied=True)), repeat)


def theirs(name: str, depth: int, micro_batches: int, *, lowered: bool) -> float:
    """CPU seconds of constructing their schedule, two stages per rank, with or without lowering.

    The constructor needs only the stages' places, so plain objects stand in for the modules.
    """
    stages: list[Any] = [
        SimpleNamespace(
            group_size=depth,
            group_rank=0,
            num_stages=2 * depth,
            stage_index=index,
            is_last=False,
            submod=None,
        )
        for index in (0, depth)
    ]
    made = getattr(peer, name)

    def build() -> None:
        if lowered:
            made(stages, micro_batches)
        else:
            with mock.patch.object(peer._PipelineScheduleRuntime, "_prepare_schedule_with_comms"):
                made(stages, micro_batches)

    return best(build, 1 if depth > 8 else 3)


def best(work: Callable[[], object], repeat: int) -> float:
    """The least CPU time of ``repeat`` runs."""
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


if __name__ == "__main__":
    raise SystemExit(main())
