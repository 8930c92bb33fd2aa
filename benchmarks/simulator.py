"""How fast the simulator is: ``python benchmarks/simulator.py``.

Seconds of this process's own CPU time, from the specification to the prediction: generating,
lowering, simulating. Actions are all instructions of all simulated ranks.
"""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import replace
from pathlib import Path

from bitpipe.simulate import conf, predict
from bitpipe.simulate.cells import Methods, read_cells
from bitpipe.simulate.programs import program_of

OUT = Path(__file__).resolve().parent.parent / "results" / "bench" / "simulator.csv"
CASES = ((8, 1, 32), (16, 2, 64), (16, 256, 64), (64, 1, 512))
"""(D, W, N) of BitPipe; the third has 4,096 devices."""


def main() -> int:
    """Time every case, print and write the table."""
    methods, calibration = Methods(), conf.calibration("physical")
    model = replace(conf.model("bert_64"), layers=128)
    cluster = replace(conf.cluster("a800"), nodes=512)
    rows = []
    for depth, width, micro_batches in CASES:
        job = methods.job("full", model=model, depth=depth, width=width, size=4, micro_batches=micro_batches)
        begin = time.process_time()
        program = program_of(job)
        made = time.process_time()
        found = predict(job, cluster, calibration)
        assert found.iteration_seconds > 0
        end = time.process_time()
        actions = width * sum(len(row) for row in program.rows)
        rows.append(
            {
                "case": f"bitpipe D={depth} W={width} N={micro_batches}",
                "devices": depth * width,
                "actions": actions,
                "program_cpu_seconds": round(made - begin, 3),
                "simulate_cpu_seconds": round(end - made, 3),
                "actions_per_cpu_second": round(actions / (end - made)),
            }
        )
    begin = time.process_time()
    cells = read_cells()
    for cell in cells:
        predict(cell.job, conf.cluster("a800"), calibration)
    seconds = time.process_time() - begin
    print(f"Table 6: {len(cells)} cells in {seconds:.2f} s of CPU time, generation included")
    width_of = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    print("  ".join(key.ljust(size) for key, size in width_of.items()))
    for row in rows:
        print("  ".join(str(row[key]).ljust(size) for key, size in width_of.items()))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
