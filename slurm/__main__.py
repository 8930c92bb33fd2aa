"""``python -m slurm status | logs | cancel | collect | requeue | init | doctor | testcluster``."""

from __future__ import annotations

import sys

from bitpipe.reader import until_reader_leaves
from slurm.commands import main

sys.exit(until_reader_leaves(lambda: main(sys.argv[1:])))
