"""From blocks to job arrays to sbatch text. Pure: nothing here asks a cluster or writes a file."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from bitpipe.schedule.own import COPIES
from experiments.running.block import Block
from slurm.client import Partition
from slurm.site import Site

SCHEDULES = "schedules"
"""Folder of a snapshot for the user's own schedule files."""


@dataclass(frozen=True, kw_only=True, order=True)
class Request:
    """Resources of one job: what all members of an array share."""

    nodes: int
    tasks_per_node: int
    gpus_per_node: int
    minutes: int

    @property
    def gpu_hours(self) -> float:
        """GPUs × the time limit."""
        return self.nodes * self.gpus_per_node * self.minutes / 60

    @property
    def rank_hours(self) -> float:
        """Ranks × the time limit: what a job without GPUs may take."""
        return self.nodes * self.tasks_per_node * self.minutes / 60

    def __str__(self) -> str:
        gpus = f", {self.gpus_per_node} GPUs/node" if self.gpus_per_node else ""
        return f"{self.nodes}x{self.tasks_per_node}{gpus}, {self.minutes} min"


@dataclass(frozen=True, kw_only=True)
class Array:
    """One submission: blocks (by their index in the sweep) that ask for the same."""

    request: Request
    members: tuple[int, ...]

    @property
    def gpu_hours(self) -> float:
        return self.request.gpu_hours * len(self.members)

    @property
    def cost(self) -> str:
        """At most so much, for people."""
        return cost([self])


def request(block: Block, site: Site) -> Request:
    """What a block asks for: its shape, and time for start-up and for each repeat of each of its cells."""
    measurements = len(block.cells) * block.settings.repeats
    asks_gpus = site.gpus == "always" or (site.gpus == "cuda" and block.backend == "cuda")
    shape = block.shape
    return Request(
        nodes=shape.nodes,
        tasks_per_node=shape.devices_per_node,
        gpus_per_node=shape.devices_per_node if asks_gpus else 0,
        minutes=site.limit or math.ceil(site.startup_minutes + measurements * site.minutes_per_cell),
    )


def arrays(requests: Sequence[Request], *, max_array_size: int) -> list[Array]:
    """One array per request, in order of first appearance, none longer than the cluster allows."""
    groups: dict[Request, list[int]] = {}
    for index, one in enumerate(requests):
        groups.setdefault(one, []).append(index)
    return [
        Array(request=one, members=tuple(members[start : start + max_array_size]))
        for one, members in groups.items()
        for start in range(0, len(members), max_array_size)
    ]


def cost(planned: Sequence[Array]) -> str:
    """The most that jobs may take together: GPU-hours, and rank-hours of those without GPUs."""
    gpus = sum(array.gpu_hours for array in planned)
    ranks = sum(a.request.rank_hours * len(a.members) for a in planned if not a.request.gpus_per_node)
    parts = [f"{gpus:.1f} GPU-hours"] * bool(gpus) + [f"{ranks:.1f} rank-hours"] * bool(ranks)
    return " and ".join(parts) or "0.0 GPU-hours"


def fit(planned: Sequence[Array], site: Site, offered: Mapping[str, Partition]) -> None:
    """Check requests against what the cluster has, before anything is submitted.

    Nodes that are drained or down count: they may come back, and jobs can wait for them.

    Raises:
        InputError: unknown partition, or in none of those asked for enough nodes, GPUs per node, cores or
            minutes.
    """
    for name in site.partitions:
        if name not in offered:
            known = f"this cluster has {', '.join(sorted(offered)) or 'none'}"
            raise InputError("site.partition", name, known)
    chosen = [offered[name] for name in site.partitions] or [p for p in offered.values() if p.default]
    if not chosen:
        return  # no default: sbatch will say so
    for one in dict.fromkeys(array.request for array in planned):
        refusals = [_refusal(one, site, partition) for partition in chosen]
        if all(refusals):
            raise refusals[0] or AssertionError


def usable(site: Site, offered: Mapping[str, Partition]) -> int:
    """Nodes that could take a job now, in the best of the partitions asked for."""
    chosen = [offered[name] for name in site.partitions] or [p for p in offered.values() if p.default]
    return max((partition.usable for partition in chosen), default=0)


def _refusal(one: Request, site: Site, partition: Partition) -> InputError | None:
    """Why a partition cannot give what a request asks for; None if it can."""
    where = f"partition {partition.name} has"
    if one.nodes > partition.nodes:
        return InputError("nodes", one.nodes, f"{where} {partition.nodes} nodes")
    if one.gpus_per_node > partition.gpus_per_node:
        most = partition.gpus_per_node
        hint = f"cluster.devices_per_node={most} puts {most} ranks on a node" if most else "another partition"
        return InputError("gpus_per_node", one.gpus_per_node, f"{where} {most} per node", hint)
    cpus = one.tasks_per_node * site.cpus_per_task
    if partition.cpus_per_node and cpus > partition.cpus_per_node:
        return InputError("cpus per node", cpus, f"{where} {partition.cpus_per_node} per node")
    if partition.minutes is not None and one.minutes > partition.minutes:
        return InputError("minutes", one.minutes, f"{where} a limit of {partition.minutes} minutes")
    return None


def check_budget(planned: Sequence[Array], max_gpu_hours: float | None) -> None:
    """Refuse a sweep whose time limits sum to more than allowed.

    Raises:
        InputError: it does.
    """
    total = sum(array.gpu_hours for array in planned)
    if max_gpu_hours is not None and total > max_gpu_hours:
        raise InputError(
            "max_gpu_hours",
            f"{max_gpu_hours:g}",
            f"the sweep may take {total:.1f} GPU-hours",
            "fewer cells, a shorter site.minutes_per_cell, or a larger limit",
        )


def parameters(
    array: Array, site: Site, *, name: str, code: Path, dependency: str | None = None
) -> dict[str, Any]:
    """The array's settings as submitit takes them; ``code`` is the snapshot that the jobs run."""
    one = array.request
    values: dict[str, Any] = {
        "job_name": name,
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "nodes": one.nodes,
        "ntasks_per_node": one.tasks_per_node,
        "cpus_per_task": site.cpus_per_task,
        "mem_per_cpu": site.mem_per_cpu,
        "time": one.minutes,
        "exclusive": site.exclusive or None,
        "dependency": dependency,
        "array_parallelism": site.parallel,
        "use_srun": False,  # the job itself starts steps, so that one cell's end is not the job's
        "setup": [*_environment(site, code), *map(_guarded, site.setup)],
    }
    if one.gpus_per_node and site.gpu_type:
        values["gres"] = f"gpu:{site.gpu_type}:{one.gpus_per_node}"
    elif one.gpus_per_node:
        values["gpus_per_node"] = one.gpus_per_node
    more: dict[str, Any] = {
        # To the batch process alone (B:), early enough to write down what happened.
        "signal": "B:USR2@20",
        "chdir": str(code),
        "export": "ALL",
        "requeue": True,
        "wckey": None,
    }
    if dependency:
        more["kill-on-invalid-dep"] = "yes"
    more.update({name: value for name, value in site.sbatch.items() if name != "time"})  # in the request
    values["additional_parameters"] = {key: value for key, value in more.items() if value is not None}
    values["wckey"] = None
    return {key: value for key, value in values.items() if value is not None or key == "wckey"}


def _environment(site: Site, code: Path) -> list[str]:
    pairs = {**site.environment, "PYTHONUNBUFFERED": "1", COPIES: str(code / SCHEDULES)}
    lines = [f"export {key}={shlex.quote(value)}" for key, value in pairs.items()]
    # The snapshot comes first; what is imported besides lies where the submitting shell found it.
    path = f"{shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}"
    return [*lines, f"export PYTHONPATH={path}"]


def _guarded(line: str) -> str:
    """A line of the site's set-up that ends the job if it fails, and says which it was."""
    said = shlex.quote(f"site.setup: {' '.join(line.split())}: ended with status")
    return f"{{ {line.rstrip()}\n}} || {{ s=$?; echo {said} $s >&2; exit $s; }}"


def interpreter(site: Site, python: str) -> str:
    """The shell words that start a job's supervisor; ``exec`` lets signals reach Python itself.

    It stays outside any container, because a container seldom has Slurm's commands; ranks enter it.
    """
    own = site.python if site.container == "none" else None
    return f"exec {shlex.quote(site.host_python or own or python)}"


def step_command(
    site: Site,
    one: Request,
    python: str,
    *,
    output: str,
    error: str,
    code: Path,
    visible: Sequence[Path] = (),
) -> list[str]:
    """The srun command line of one step, up to the module to run.

    Whatever the submitting shell or the job's own script says, its environment reaches the ranks, and they
    have the cores that the job has for them. (Since Slurm 22.05 srun inherits neither.)

    Args:
        site: the cluster's settings.
        one: the job's resources.
        python: the supervisor's interpreter.
        output, error: file names, as srun takes them.
        code: the snapshot; a container starts there, for ``python -m`` imports from where it starts.
        visible: further folders that a container's ranks read or write.
    """
    command = [
        "srun",
        "--unbuffered",
        "--kill-on-bad-exit=1",
        "--export=ALL",
        f"--nodes={one.nodes}",
        f"--ntasks={one.nodes * one.tasks_per_node}",
        f"--ntasks-per-node={one.tasks_per_node}",
        f"--cpus-per-task={site.cpus_per_task}",
        f"--output={output}",
        f"--error={error}",
        *site.srun,
    ]
    mounts = [*site.mounts, *(f"{path}:{path}" for path in _outermost([code, *visible]))]
    if site.container == "none":
        return [*command, site.python or python, "-u"]
    if site.container == "pyxis":
        command += [f"--container-image={site.image}", f"--container-mounts={','.join(mounts)}"]
        command.append(f"--container-workdir={code}")
    else:
        command += ["apptainer", "exec", *["--nv"] * bool(one.gpus_per_node)]
        command += [*(f"--bind={mount}" for mount in mounts), f"--pwd={code}", str(site.image)]
    return [*command, site.python or "python3", "-u"]


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Folders that lie in no other one of them, in order."""
    every = list(dict.fromkeys(paths))
    return [path for path in every if not any(path.is_relative_to(o) for o in every if o != path)]


def render(values: Mapping[str, Any], *, count: int, folder: Path, python: str) -> str:
    """The sbatch text of an array of ``count`` jobs, exactly as it is submitted."""
    from submitit.slurm.slurm import _make_sbatch_string

    command = f"{python} -u -m submitit.core._submit {shlex.quote(str(folder))}"
    text: str = _make_sbatch_string(
        command=command, folder=folder, map_count=count if count > 1 else None, **values
    )
    return text
