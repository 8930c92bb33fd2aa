"""The site file: what one cluster wants to be asked, kept outside git."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError, choose
from slurm import sbatch_options, site_text
from slurm.site_text import text

DEFAULT = ROOT / "site.yaml"
VARIABLE = "BITPIPE_SITE"
CONTAINERS = ("none", "pyxis", "apptainer")
GPU_USE = ("cuda", "always", "never")
YEAR = 525600.0  # minutes


@dataclass(frozen=True, kw_only=True)
class Site:
    """Settings of one cluster.

    Attributes:
        partition, account, qos, constraint: as sbatch takes them; None leaves them out. Several
            partitions with commas.
        gpus: when to ask for GPUs: for backend ``cuda`` (the default), ``always`` or ``never``.
        gpu_type: asks for ``gpu:<type>:<count>`` as gres instead of plain GPUs per node.
        cpus_per_task: cores per rank.
        mem_per_cpu: as sbatch takes it, for instance ``2000M``.
        exclusive: whole nodes.
        minutes_per_cell: time limit of one cell.
        startup_minutes: added once per job, for start-up, preflight and restarts.
        parallel: members of one array that may run at the same time.
        environment: variables of the job.
        setup: shell lines before anything else (module load …); one that fails ends the job.
        python: interpreter of the ranks; None is the host's, or with a container its ``python3``.
        host_python: interpreter of the process that supervises a job, always outside a container;
            None is ``python`` where there is no container, else the one that submits.
        container: ``none``, ``pyxis`` (with enroot) or ``apptainer``.
        image: of the container.
        mounts: ``host:container`` pairs; the sweep's own folders are mounted anyway.
        srun: further arguments of srun, for instance ``--mpi=none``.
        sbatch: further options of sbatch, name → value; True is an option without a value, None takes
            one out. ``time`` is the limit of every job, instead of minutes per cell.
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
    host_python: str | None = None
    container: str = "none"
    image: str | None = None
    mounts: tuple[str, ...] = ()
    srun: tuple[str, ...] = ()
    sbatch: Mapping[str, str | bool | None] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Site:
        """Build from what the file holds.

        Args:
            data: texts, lists of texts and pairs, as :func:`slurm.site_text.read` gives them.

        Raises:
            InputError: an unknown key (the nearest is named) or a value of the wrong kind.
        """
        known = {f.name: f for f in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in data.items():
            choose("site", str(key), known)
            if value is not None:
                values[key] = _converted(key, value)
        site = _folded(cls(**values), values)
        choose("site.container", site.container, CONTAINERS)
        choose("site.gpus", site.gpus, GPU_USE)
        if site.container != "none" and not site.image:
            raise InputError("site.image", "missing", f"container: {site.container} needs an image")
        if site.container == "none" and site.image:
            raise InputError("site.image", site.image, "needs container: apptainer or pyxis")
        return site

    @property
    def limit(self) -> int | None:
        """Minutes of every job as ``sbatch: {time: …}`` gives them; None where cells decide."""
        time = self.sbatch.get("time")
        return sbatch_options.minutes(time) if isinstance(time, str) else None

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions that are asked for; none is the default one."""
        return tuple(name for name in (self.partition or "").split(",") if name)


def load(path: str | Path | None = None) -> tuple[Site, Path | None]:
    """The site and where it was read: ``path``, else ``$BITPIPE_SITE``, else ``site.yaml``, else defaults.

    Raises:
        InputError: a named file does not exist, is no YAML mapping or holds bad values.
    """
    named = path or os.environ.get(VARIABLE)
    file = Path(named).expanduser() if named else DEFAULT
    try:
        there = file.exists()
    except (OSError, ValueError) as error:  # a name too long, or with a null byte
        raise InputError("site", repr(str(file))[:200], f"no such file ({error})") from error
    if not there:
        if named:
            raise InputError("site", file, "no such file", "python -m slurm init writes one")
        return Site(), None
    return Site.of(site_text.read(file)), file


def _converted(key: str, value: Any) -> Any:
    """A value as the kind that the field has.

    Raises:
        InputError: it is of another kind.
    """
    name = f"site.{key}"
    if key in ("setup", "mounts", "srun"):
        if not isinstance(value, list | tuple):
            raise InputError(name, value, "expected a list")
        return tuple(text(name, entry, lines=key == "setup") for entry in value)
    if key == "sbatch":
        return sbatch_options.converted(_mapping(name, value))
    if key == "environment":
        return {_variable(n): text(f"{name}.{n}", "" if v is None else v) for n, v in _mapping(name, value)}
    if key == "partition":
        several = value if isinstance(value, list | tuple) else [value]
        names = ",".join(text(name, entry) for entry in several).split(",")
        return ",".join(one.strip() for one in names if one.strip()) or None
    one = text(name, value)
    if key in ("cpus_per_task", "parallel"):
        if not re.fullmatch(r"0*[1-9][0-9]{0,5}", one, re.ASCII):
            raise InputError(name, one[:80], "a whole number from 1")
        return int(one)
    if key in ("minutes_per_cell", "startup_minutes"):
        return _minutes(name, one)
    if key == "exclusive":
        return sbatch_options.truth(name, one)
    return one or None


def _minutes(key: str, one: str) -> float:
    try:
        minutes = float(one) if one.isascii() and "_" not in one else math.nan
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= YEAR:  # NaN is not either
        raise InputError(key, one[:80], "a positive number of minutes, at most a year's")
    return minutes


def _mapping(key: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise InputError(key, value, "expected name: value pairs")
    return [(str(name), entry) for name, entry in value.items()]


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InputError("site.environment", repr(name)[:80], "no name of a variable")
    return name


def _folded(site: Site, given: Mapping[str, Any]) -> Site:
    """Options of sbatch that have a key of their own become that key: there is one of each.

    Raises:
        InputError: both are given.
    """
    left = dict(site.sbatch)
    own: dict[str, Any] = {}
    for option, key in sbatch_options.OWN_KEY.items():
        if option not in left:
            continue
        if key in given:
            raise InputError(f"site.sbatch.{option}", left[option], f"site.{key} is given too")
        value = left.pop(option)
        if value is not None:
            own[key] = _converted(key, value)
    return replace(site, sbatch=left, **own)
