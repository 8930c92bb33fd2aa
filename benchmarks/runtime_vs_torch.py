"""Our runtime against torch.distributed.pipelining: ``python benchmarks/runtime_vs_torch.py``.

Four ranks, the same modules, micro-batches and schedule on both sides, a few iterations each in turn.
A ratio above 1 means that ours is faster. ``ratio_*``: ours as it is, with weight gradients fused into the
matrix product, which the peer does not do; ``plain_ratio_*``: ours without that. Where ranks share cores,
wall time shows the total work of all ranks, not the bubbles.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from peer import SCHEDULES, Case, Pairs, compare

from bitpipe.runtime.processes.pool import Pool

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "runtime_vs_torch.csv"
SIZES = ((128, 64, 2), (256, 128, 1))
"""(hidden, sequence, micro-batch size)."""
EQUAL = 1e-4  # largest difference of a gradient, relative to its largest element, in fp32


def row_of(case: Case, found: Pairs) -> dict[str, object]:
    """One row of the table; ratios are the peer's time over ours, turn by turn."""

    def median(times: Mapping[str, Sequence[float]], side: str) -> float:
        return round(statistics.median(_ratios(times, side)), 3)

    first, _, third = statistics.quantiles(_ratios(found.seconds, "own"), n=4)
    return {
        "schedule": case.schedule,
        "micro_batches": case.micro_batches,
        "hidden": case.hidden,
        "sequence": case.sequence,
        "ratio_median": median(found.seconds, "own"),
        "ratio_q1": round(first, 3),
        "ratio_q3": round(third, 3),
        "cpu_ratio_median": median(found.cpu, "own"),
        "plain_ratio_median": median(found.seconds, "plain"),
        "plain_cpu_ratio_median": median(found.cpu, "plain"),
        "gradients_equal": found.worst_gradient_difference <= EQUAL,
    }


def _ratios(times: Mapping[str, Sequence[float]], side: str) -> list[float]:
    """The peer's time over that of a side of ours, turn by turn."""
    return [peer / own for peer, own in zip(times["peer"], times[side], strict=True)]


def write(out: Path, rows: list[dict[str, object]]) -> None:
    """Write the table so far."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """Run every case, print and write the table; fails if a gradient differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40, help="how often the sides take turns")
    parser.add_argument("--iterations", type=int, default=1, help="of each side per turn")
    parser.add_argument("--schedule", choices=SCHEDULES, action="append", help="only this one (repeatable)")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    rows = []
    with Pool(4, watchdog=600.0) as pool:  # the peer does not show where it is
        for hidden, sequence, size in SIZES:
            for schedule in given.schedule or SCHEDULES:
                for micro_batches in (8, 16):
                    case = Case(
                        schedule=schedule,
                        micro_batches=micro_batches,
                        layers=8,
                        hidden=hidden,
                        sequence=sequence,
                        micro_batch_size=size,
                    )
                    rows.append(row_of(case, pool.call(compare, case, given.pairs, given.iterations)))
                    print("  ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
                    write(given.out, rows)
    return 0 if all(row["gradients_equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
