"""What the preflights of a sweep measured, as a cluster file for the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from experiments.records.store import write_text
from slurm import preflight
from slurm.folder import SweepFolder

_UNMEASURED = {"memory_bytes": 80e9, "memory_bandwidth": 2e12}
"""Not measured by a preflight; an A100's, to be corrected by hand."""


def write(folder: SweepFolder, path: Path, *, force: bool = False) -> Cluster:
    """Write the largest allocation's measurements to ``path``, which becomes a cluster's name.

    Raises:
        InputError: no job of the sweep has looked at its allocation with more than one rank, or the file is
            there already.
        NotWritten: the file system refuses.
    """
    if path.exists() and not force:
        raise InputError("--output", path, "is there already", "--force replaces it")
    found = [json.loads(file.read_text()) for file in folder.jobs_folder.glob(f"*/{preflight.FILE}")]
    found = [one for one in found if one["links"].get("p2p_intra") or one["links"].get("p2p_inter")]
    if not found:
        raise InputError("sweep", folder.name, "no job has run a preflight", "submit with preflight=true")
    largest = max(found, key=lambda one: len(one["ranks"]))
    document = preflight.Preflight(**largest).cluster(path.stem, **_UNMEASURED)
    cluster = Cluster.from_mapping(document)
    write_text(path, yaml.safe_dump(document, sort_keys=False))
    return cluster
