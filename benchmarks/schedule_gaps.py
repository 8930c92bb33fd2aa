"""How near the bound orders at peak D·Ma come: ``python benchmarks/schedule_gaps.py``.

For every (D, N) where the list rule misses the lower bound at cap D·Ma, the best order of three
kinds of start: the rule's own, the search from it, and orders of fewer units stretched by repeating
one of their units. Every order counted was generated, checked and evaluated here.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bitpipe.schedule import UNIT, ScheduleSpec, generate, held_chunks, lower_bound
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.search.fast import improve, starts_of
from bitpipe.schedule.search.problem import Problem

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "schedule_gaps.csv"
POINTS = ((8, 32), (8, 64), (16, 32), (16, 64), (16, 128), (32, 64), (32, 128))
CHUNKS = 2


def stretched(codes: Codes, start: list[float], fewer: Codes, unit: int) -> list[float]:
    """Priorities for ``codes`` from an order of ``fewer`` micro-batches: one unit repeated."""
    per_unit = codes.placement.depth // 2
    period = 3 * CHUNKS * codes.placement.depth
    extra = (codes.micro_batches - fewer.micro_batches) // 2
    cut = (unit + 1) * per_unit
    out: list[float] = []
    for pipe, local in zip(codes.pipes, codes.locals, strict=True):
        if local < cut:
            source, shift = local, 0
        elif local >= cut + extra:
            source, shift = local - extra, extra // per_unit * period
        else:
            source = cut - per_unit + (local - cut) % per_unit
            shift = ((local - cut) // per_unit + 1) * period
        first = (pipe * (fewer.micro_batches // 2) + source) * fewer.length
        out += [start[first + step] + shift for step in range(codes.length)]
    return out


def seeds(codes: Codes) -> Iterator[list[float]]:
    """Starts of shorter orders at the same cap, stretched."""
    depth = codes.placement.depth
    count = depth
    while count < codes.micro_batches:
        fewer = generate(ScheduleSpec(method="bitpipe", depth=depth, micro_batches=count, cap=CHUNKS * depth))
        known = Codes.of(fewer)
        problem = Problem.of(known, UNIT, CHUNKS * depth)
        start = starts_of(problem, [known.encode(order) for order in fewer.orders])
        for unit in range(count // depth):
            yield stretched(codes, start, known, unit)
        count *= 2


def row_of(depth: int, count: int, effort: int) -> dict[str, object]:
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
        better = improve(problem, [rule, *seeds(codes)], round(bound * CHUNKS), effort)
        assert better
        found = min(best, problem.units(better[0]))
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
    parser.add_argument("--effort", type=int, default=2_000_000, help="placed actions after all starts")
    parser.add_argument("--depth", type=int, help="only this D")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows = []
    for depth, count in POINTS:
        if given.depth in (None, depth):
            rows.append(row_of(depth, count, given.effort))
            print(rows[-1], flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
