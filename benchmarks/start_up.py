"""How long ranks take to be up: ``python benchmarks/start_up.py``.

From nothing (no fork server yet) to every rank in one gloo world, ready for work; and how long
stopping them takes. Every repeat is a fresh process.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bitpipe.runtime.processes.pool import Pool

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "start_up.csv"
RANKS = (4, 8, 16, 32)


def once(ranks: int) -> None:
    """Start and stop one pool; prints both times in seconds."""
    begun = time.perf_counter()
    pool = Pool(ranks)
    pool.start()
    up = time.perf_counter()
    pool.close()
    print(up - begun, time.perf_counter() - up)


def main() -> int:
    """Measure every number of ranks, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--once", type=int, metavar="RANKS", help="one measurement in this process")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    if given.once:
        once(given.once)
        return 0
    rows = []
    for ranks in RANKS:
        command = [sys.executable, __file__, "--once", str(ranks)]
        found = [
            [
                float(x)
                for x in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            ]
            for _ in range(given.repeats)
        ]
        up = [start for start, _ in found]
        rows.append(
            {
                "ranks": ranks,
                "repeats": given.repeats,
                "start_seconds_median": round(statistics.median(up), 3),
                "start_seconds_min": round(min(up), 3),
                "start_seconds_max": round(max(up), 3),
                "stop_seconds_median": round(statistics.median(stop for _, stop in found), 3),
            }
        )
        print("  ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
