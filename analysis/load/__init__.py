"""Reading: records, rank logs and wandb runs into the frames of :mod:`analysis.load.schema`.

A truncated, corrupt, foreign or still-running file is named in the frame ``problems`` and left
out; it is never fatal and never silent.
"""

from analysis.load.loading import Loaded, load
from analysis.load.wandb_runs import load_offline, load_online

__all__ = ["Loaded", "load", "load_offline", "load_online"]
