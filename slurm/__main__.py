"""``python -m slurm status | logs | cancel | collect | requeue | init | doctor | testcluster``."""

from __future__ import annotations

import sys

from slurm.commands import main

sys.exit(main(sys.argv[1:]))
