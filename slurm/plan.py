"""From blocks to job arrays to sbatch text. Pure: nothing here asks a cluster or writes a file."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from experiments.running.block import Block
from slurm.client import Partition
from slurm.site import Site


@dataclass(frozen=True, kw_only=True, order=True)
class Request:
    """Resources of one job: what all members of an array share."""

    nodes: int
    tasks_per_node: int
    gpus_per_node: int
    minutes: int

    @property
    def gpu_hours(self) -> float:
        """GPUs (or, without GPUs, ranks) × the time limit."""
        return self.nodes * (self.gpus_per_node or self.tasks_per_node) * self.minutes / 60

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


def request(block: Block, site: Site) -> Request:
    """What a block asks for: its shape, and time for start-up and for each repeat of each of its cells."""
    measurements = len(block.cells) * block.settings.repeats
    asks_gpus = site.gpus == "always" or (site.gpus == "cuda" and block.backend == "cuda")
    shape = block.shape
    return Request(
        nodes=shape.nodes,
        tasks_per_node=shape.devices_per_node,
        gpus_per_node=shape.devices_per_node if asks_gpus else 0,
        minutes=math.ceil(site.startup_minutes + measurements * site.minutes_per_cell),
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


def fit(planned: Sequence[Array], site: Site, offered: Mapping[str, Partition]) -> None:
    """Check requests against what the cluster has, before anything is submitted.

    Raises:
        InputError: unknown partition, too many nodes, GPUs per node, cores or minutes.
    """
    if site.partition and site.partition not in offered:
        raise InputError(
            "site.partition", site.partition, f"this cluster has {', '.join(sorted(offered)) or 'none'}"
        )
    default = next((p for p in offered.values() if p.default), None)
    partition = offered[site.partition] if site.partition else default
    if partition is None:
        return  # no default: sbatch will say so
    where = f"partition {partition.name} has"
    for one in (array.request for array in planned):
        if one.nodes > partition.nodes:
            raise InputError("nodes", one.nodes, f"{where} {partition.nodes} usable nodes")
        if one.gpus_per_node > partition.gpus_per_node:
            raise InputError(
                "gpus_per_node", one.gpus_per_node, f"{where} {partition.gpus_per_node} per node"
            )
        cpus = one.tasks_per_node * site.cpus_per_task
        if partition.cpus_per_node and cpus > partition.cpus_per_node:
            raise InputError("cpus per node", cpus, f"{where} {partition.cpus_per_node} per node")
        if partition.minutes is not None and one.minutes > partition.minutes:
            raise InputError("minutes", one.minutes, f"{where} a limit of {partition.minutes} minutes")


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
        "setup": [*_environment(site, code), *site.setup],
    }
    if one.gpus_per_node and site.gpu_type:
        values["gres"] = f"gpu:{site.gpu_type}:{one.gpus_per_node}"
    elif one.gpus_per_node:
        values["gpus_per_node"] = one.gpus_per_node
    more: dict[str, Any] = {
        # To the batch process alone (B:), early enough to write down what happened.
        "signal": "B:USR2@20",
        "chdir": str(code),
        "requeue": True,
        "wckey": None,
    }
    if dependency:
        more["kill-on-invalid-dep"] = "yes"
    more.update(site.sbatch)
    values["additional_parameters"] = {key: value for key, value in more.items() if value is not None}
    values["wckey"] = None
    return {key: value for key, value in values.items() if value is not None or key == "wckey"}


def _environment(site: Site, code: Path) -> list[str]:
    pairs = {**site.environment, "PYTHONPATH": str(code), "PYTHONUNBUFFERED": "1"}
    return [f"export {key}={shlex.quote(value)}" for key, value in pairs.items()]


def interpreter(site: Site, python: str) -> str:
    """The shell words that start Python in a job; ``exec`` lets signals reach Python itself.

    With apptainer the supervising process stays outside the container and only ranks enter it,
    because a container seldom has Slurm's commands.
    """
    return f"exec {shlex.quote(site.python or python)}"


def step_command(site: Site, one: Request, python: str, *, output: str, error: str) -> list[str]:
    """The srun command line of one step, up to the module to run."""
    command = [
        "srun",
        "--unbuffered",
        "--kill-on-bad-exit=1",
        f"--nodes={one.nodes}",
        f"--ntasks={one.nodes * one.tasks_per_node}",
        f"--ntasks-per-node={one.tasks_per_node}",
        f"--output={output}",
        f"--error={error}",
        *site.srun,
    ]
    if site.container == "pyxis":
        command.append(f"--container-image={site.image}")
        if site.mounts:
            command.append(f"--container-mounts={','.join(site.mounts)}")
    if site.container == "apptainer":
        binds = [f"--bind={mount}" for mount in site.mounts]
        command += ["apptainer", "exec", "--nv", *binds, str(site.image)]
    return [*command, site.python or python, "-u"]


def render(values: Mapping[str, Any], *, count: int, folder: Path, python: str) -> str:
    """The sbatch text of an array of ``count`` jobs, exactly as it is submitted."""
    from submitit.slurm.slurm import _make_sbatch_string

    command = f"{python} -u -m submitit.core._submit {shlex.quote(str(folder))}"
    text: str = _make_sbatch_string(
        command=command, folder=folder, map_count=count if count > 1 else None, **values
    )
    return text
