"""What Slurm's commands may inherit from a shell: nothing that they read as an option.

``SBATCH_TIMELIMIT`` wins over the time in a script, ``SLURM_TIME_FORMAT`` changes what scontrol
prints, ``SQUEUE_STATES`` hides jobs, and an interactive allocation leaves its own shape behind. Of a
sweep, the site file and the configuration decide alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OPTION = re.compile(r"(SLURMD?|SBATCH|SRUN|SALLOC|SATTACH|SBCAST|SQUEUE|SCANCEL|SINFO|SACCT|SACCTMGR|"
                     r"SCONTROL|SSTAT|SPRIO|SSHARE|SREPORT|SDIAG|STRIGGER|SCRUN)_")  # fmt: skip
KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_JWKS"})
"""Where the cluster is and who asks: no options."""


def is_option(name: str) -> bool:
    """Whether one of Slurm's commands would read this variable as an option, or as a job around it."""
    return bool(_OPTION.match(name)) and name not in KEPT


def scrubbed(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for a command of Slurm's."""
    return {name: value for name, value in environment.items() if not is_option(name)}


@contextmanager
def scrubbed_here() -> Iterator[None]:
    """This process's own environment scrubbed for a while: for a library that starts sbatch itself."""
    taken = {name: os.environ.pop(name) for name in list(os.environ) if is_option(name)}
    try:
        yield
    finally:
        os.environ.update(taken)
