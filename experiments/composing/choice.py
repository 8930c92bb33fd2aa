"""Which backend and launcher a command line gets, and the sentence that says why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitpipe.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the choice depends on.

    Attributes:
        gpus: CUDA devices that a process here would see.
        sbatch: whether Slurm can be submitted to.
        job: the Slurm job whose shell this is; None outside one.
        on_node: whether this is a machine of that job, and not the one on which ``salloc`` was typed.
    """

    gpus: int
    sbatch: bool
    job: str | None = None
    on_node: bool = False

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Machine:
        """Look at this machine, without importing torch."""
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        present = len(list(Path("/dev").glob("nvidia[0-9]*")))
        if visible is not None:
            named = [name for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
            present = min(present, len(named))
        return cls(
            gpus=present,
            sbatch=shutil.which("sbatch") is not None,
            job=environment.get("SLURM_JOB_ID") or None,
            on_node=bool(environment.get("SLURMD_NODENAME")),
        )

    @property
    def allocated(self) -> bool:
        """Whether this machine is one that a job was given."""
        return self.job is not None and self.on_node


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A decision: what to add to the overrides, and one sentence."""

    backend: str
    launcher: str
    sentence: str
    overrides: tuple[str, ...]


def choose_backend(
    overrides: Sequence[str], machine: Machine, *, multirun: bool, pinned: str | None = None
) -> Choice:
    """Decide for a command line.

    ``backend``: as asked; else what the experiment file pins; else ``cuda`` where GPUs are
    visible or the sweep goes to Slurm; else ``simulate``. ``launcher``: as forced; else Slurm
    for a sweep of anything but ``simulate`` on a machine with sbatch that no job was given; else local.

    Args:
        overrides: the command line.
        machine: where it was typed.
        multirun: whether ``-m`` was given.
        pinned: the backend that the experiment file overrides, if it does.

    Raises:
        InputError: a launcher is forced without ``-m``, or Slurm where there is none.
    """
    asked, forced = value_of(overrides, "backend"), value_of(overrides, "hydra/launcher")
    if forced and not multirun:
        raise InputError("hydra/launcher", forced, "a launcher runs sweeps", "add -m")
    if forced == "slurm" and not machine.sbatch:
        raise InputError("hydra/launcher", forced, "no sbatch on PATH here", "type hydra/launcher=local")
    submits = machine.sbatch and not machine.allocated
    to_slurm = forced == "slurm" or (multirun and submits and not forced)
    if asked:
        backend, why = asked, "as asked"
    elif pinned:
        backend, why = pinned, "the experiment's own"
    elif machine.gpus:
        backend, why = "cuda", f"{machine.gpus} GPUs are visible"
    elif to_slurm:
        backend, why = "cuda", "the sweep goes to Slurm"
    else:
        stays = " and nothing goes to Slurm" if machine.sbatch else " and no sbatch here"
        backend, why = "simulate", "no GPU is visible" + (stays if multirun else "")
    if forced:
        launcher, because = forced, "as forced"
    elif not multirun:
        launcher, because = "local", "a single cell runs here"
    elif not machine.sbatch:
        launcher, because = "local", "no sbatch here"
    elif backend == "simulate":
        launcher, because = "local", "a simulation is never submitted unless forced"
    elif machine.allocated:
        launcher = "local"
        because = f"inside job {machine.job}, on this node alone; hydra/launcher=slurm submits new jobs"
    elif machine.job:
        launcher = "slurm"
        because = f"sbatch is here; new jobs, not job {machine.job}, which has no process on this machine"
    else:
        launcher, because = "slurm", "sbatch is here"
    added = [] if asked or pinned else [f"backend={backend}"]
    if multirun and not forced:
        added.append(f"hydra/launcher={launcher}")
    return Choice(
        backend=backend,
        launcher=launcher,
        sentence=f"backend={backend} ({why}), launcher={launcher} ({because})",
        overrides=tuple(added),
    )


def value_of(overrides: Sequence[str], key: str) -> str | None:
    """The last value that the overrides give ``key``, with or without ``+``; None if none."""
    for override in reversed(overrides):
        name, equals, value = override.partition("=")
        if equals and name.lstrip("+") == key:
            return value
    return None


def pinned_backend(experiment: Path) -> str | None:
    """The backend that an experiment file's defaults list overrides; None if it does not, or is none.

    Raises:
        yaml.YAMLError: it is not YAML, or not UTF-8.
    """
    import yaml

    try:
        with experiment.open("rb") as file:  # so that an error names it
            document = yaml.safe_load(file)
    except OSError:
        return None
    defaults = document.get("defaults") if isinstance(document, dict) else None
    for entry in defaults if isinstance(defaults, list) else ():
        if isinstance(entry, dict) and (name := entry.get("override /backend")):
            return str(name)
    return None
