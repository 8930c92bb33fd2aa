"""How near the bound orders at peak D·Ma come: ``python benchmarks/schedule_gaps.py``.

For the (D, N) with N > D where an order at cap D·Ma was once above the lower bound: the list rule's
makespan, and the best that justification reaches from the rule's order and from random lattices.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from bitpipe.schedule import UNIT, ScheduleSpec, check_schedule, evaluate, generate, held_chunks, lower_bound
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.list_scheduling import rows_by_start
from bitpipe.schedule.search.fast import improve, starts_of
from bitpipe.schedule.search.problem import Problem

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "schedule_gaps.csv"
POINTS = ((8, 32), (8, 64), (16, 32), (16, 64), (16, 128), (32, 64), (32, 128))
CHUNKS = 2
CHEAP = 2048  # actions; larger schedules get fewer lattices, so that each takes about as long


def seeds(codes: Codes, count: int) -> Iterator[list[float]]:
    """``count`` lattices of units with steps drawn at random, the same every time."""
    source = random.Random(1)
    stages, per_unit = codes.stages, codes.placement.depth // 2
    for _ in range(count):
        forward, backward, change = source.uniform(1.5, 5), source.uniform(3.5, 9), source.uniform(-1.5, 1.5)
        down, up, late = source.uniform(0.8, 2.5), source.uniform(1.5, 3.5), source.uniform(-4, 8)
        out: list[float] = []
        for local in codes.locals:
            unit, i = divmod(local, per_unit)
            start = (6 * CHUNKS * per_unit + change) * unit
            out += [start + forward * i + down * step for step in range(stages)]
            out += [start + backward * i + up * step + stages + late - 0.5 for step in range(stages)]
        yield out


def row_of(depth: int, count: int, lattices: int) -> dict[str, object]:
    """One line of the table."""
    cap = CHUNKS * depth
    begun = time.perf_counter()
    own = generate(ScheduleSpec(method="bitpipe", depth=depth, micro_batches=count, cap=cap))
    codes = Codes.of(own)
    bound = lower_bound(codes.placement, count, cap=cap)
    problem = Problem.of(codes, UNIT, cap)
    rule = starts_of(problem, [codes.encode(order) for order in own.orders])
    span = max(s + t for s, t in zip(rule, problem.graph.ticks, strict=True))
    found = best = problem.units(span)
    assert max(held_chunks(own)) <= cap
    if best > bound:
        some = seeds(codes, max(1, lattices * CHEAP // max(CHEAP, codes.total)))
        better = improve(problem, chain([rule], some), round(bound * CHUNKS), 0)
        assert better
        rows = rows_by_start(codes, better[1])
        order = replace(own, orders=tuple(codes.actions(row) for row in rows))
        check_schedule(order)
        assert max(held_chunks(order)) <= cap
        found = min(best, evaluate(order).makespan)
    return {
        "depth": depth,
        "micro_batches": count,
        "cap_ma": depth,
        "lower_bound": bound,
        "list_rule": best,
        "best_found": found,
        "gap": found - bound,
        "gap_percent": round(100 * (found / bound - 1), 3),
        "verdict": "closed" if found == bound else "open",
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main() -> int:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=80, help="lattices per open point, fewer if large")
    parser.add_argument("--depth", type=int, help="only this D")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows = []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for depth, count in POINTS:
        if given.depth in (None, depth):
            rows.append(row_of(depth, count, given.seeds))
            print(rows[-1], flush=True)
            with given.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
