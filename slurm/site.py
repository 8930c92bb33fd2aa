"""The site file: what one cluster wants to be asked, kept outside git."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from bitpipe.errors import InputError, choose

REPOSITORY = Path(__file__).resolve().parents[1]
DEFAULT = REPOSITORY / "site.yaml"
VARIABLE = "BITPIPE_SITE"
CONTAINERS = ("none", "pyxis", "apptainer")
GPU_USE = ("cuda", "always", "never")


@dataclass(frozen=True, kw_only=True)
class Site:
    """Settings of one cluster.

    Attributes:
        partition, account, qos, constraint: as sbatch takes them; None leaves them out.
        gpus: when to ask for GPUs: for backend ``cuda`` (the default), ``always`` or ``never``.
        gpu_type: asks for ``gpu:<type>:<count>`` as gres instead of plain GPUs per node.
        cpus_per_task: cores per rank.
        mem_per_cpu: as sbatch takes it, for instance ``2000M``.
        exclusive: whole nodes.
        minutes_per_cell: time limit of one cell.
        startup_minutes: added once per job, for start-up, preflight and restarts.
        parallel: members of one array that may run at the same time.
        environment: variables of the job.
        setup: shell lines before anything else (module load …).
        python: interpreter on the compute nodes; None is the one that submits.
        container: ``none``, ``pyxis`` (with enroot) or ``apptainer``.
        image: of the container.
        mounts: ``host:container`` pairs.
        srun: further arguments of srun, for instance ``--mpi=none``.
        sbatch: further options of sbatch, name → value.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gpus: str = "cuda"
    gpu_type: str | None = None
    cpus_per_task: int = 1
    mem_per_cpu: str | None = None
    exclusive: bool = False
    minutes_per_cell: float = 5
    startup_minutes: float = 3
    parallel: int = 64
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    python: str | None = None
    container: str = "none"
    image: str | None = None
    mounts: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()
    sbatch: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Site:
        """Build from what the file holds.

        Raises:
            InputError: an unknown key (the nearest is named) or a value of the wrong kind.
        """
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in data.items():
            choose("site", str(key), known)
            if value is not None:
                values[key] = _converted(key, value)
        site = cls(**values)
        choose("site.container", site.container, CONTAINERS)
        choose("site.gpus", site.gpus, GPU_USE)
        if site.container != "none" and not site.image:
            raise InputError("site.image", "missing", f"container: {site.container} needs an image")
        return site


def load(path: str | Path | None = None) -> tuple[Site, Path | None]:
    """The site and where it was read: ``path``, else ``$BITPIPE_SITE``, else ``site.yaml``, else defaults.

    Raises:
        InputError: a named file does not exist, is no YAML mapping or holds bad values.
    """
    named = path or os.environ.get(VARIABLE)
    file = Path(named) if named else DEFAULT
    if not file.exists():
        if named:
            raise InputError("site", file, "no such file", "python -m slurm init writes one")
        return Site(), None
    try:
        data = yaml.safe_load(file.read_text()) or {}
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        raise InputError("site", file, f"not YAML (line {line})") from error
    if not isinstance(data, Mapping):
        raise InputError("site", file, "expected keys and values, as in site.example.yaml")
    return Site.of(data), file


def _converted(key: str, value: Any) -> Any:
    """A YAML value as the kind that the field has.

    Raises:
        InputError: it is of another kind.
    """
    if key in ("setup", "mounts", "srun"):
        if not isinstance(value, list):
            raise InputError(f"site.{key}", value, "expected a list")
        return tuple(str(entry) for entry in value)
    if key in ("environment", "sbatch"):
        if not isinstance(value, Mapping):
            raise InputError(f"site.{key}", value, "expected name: value pairs")
        return {str(name): str(entry) if key == "environment" else entry for name, entry in value.items()}
    if key in ("cpus_per_task", "parallel"):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"site.{key}", value, "a whole number from 1")
        return value
    if key in ("minutes_per_cell", "startup_minutes"):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise InputError(f"site.{key}", value, "a positive number of minutes")
        return float(value)
    if key == "exclusive":
        if not isinstance(value, bool):
            raise InputError("site.exclusive", value, "true or false")
        return value
    return str(value)
