"""Breaks ranks of test sweeps on purpose: put this folder first on a job's PYTHONPATH.

``$BITPIPE_TEST_FAULTS`` maps a cell's seed to a fault (bitpipe.runtime.run.Fault), as JSON.
Only tasks that are ranks of a pool are touched, and only until Slurm has restarted their job.
"""

import json
import os
import sys

first = os.environ.get("SLURM_RESTART_COUNT", "0") == "0"
if "slurm.rank" in sys.orig_argv and "BITPIPE_TEST_FAULTS" in os.environ and first:
    from bitpipe.runtime import train
    from bitpipe.runtime.run import Fault

    wanted = {int(seed): values for seed, values in json.loads(os.environ["BITPIPE_TEST_FAULTS"]).items()}
    original = train.train_block

    def train_block(world, runs, faults=()):
        more = [
            Fault(job=number, **wanted[run.job.seed])
            for number, run in enumerate(runs)
            if run.job.seed in wanted and run.job.iterations > 2  # not the warm-up
        ]
        return original(world, runs, (*faults, *more))

    train.train_block = train_block
