"""Breaks ranks of test sweeps on purpose: put this folder first on a job's PYTHONPATH.

``$BITPIPE_TEST_FAULTS`` maps a cell's seed to a fault (tests/injected.py), as JSON.
Only tasks that are ranks of a pool are touched, and only until Slurm has restarted their job.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

first = os.environ.get("SLURM_RESTART_COUNT", "0") == "0"
if "slurm.rank" in sys.orig_argv and "BITPIPE_TEST_FAULTS" in os.environ and first:
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from injected import Fault, train_and_break

    from bitpipe.runtime import train

    wanted = json.loads(os.environ["BITPIPE_TEST_FAULTS"])
    faults = [Fault(seed=int(seed), **values) for seed, values in wanted.items()]
    train.train_block = partial(train_and_break, faults)
