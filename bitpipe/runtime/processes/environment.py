"""The same rank code where torchrun or srun has started the processes."""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from bitpipe.errors import InputError
from bitpipe.runtime.block import finished
from bitpipe.runtime.processes.address import choose_interface
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.result import RunResult
from bitpipe.runtime.run import Run
from bitpipe.runtime.train import train_block

_PORTS = 20_000, 30_000  # below the ephemeral range


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Who this process is, and where rank 0 listens."""

    rank: int
    size: int
    address: str
    port: int


def rendezvous(environment: Mapping[str, str]) -> Rendezvous:
    """Read torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), else srun's.

    Under srun, rank 0 runs on the first node of the step, and the port follows from job and step,
    so that steps that share a node do not meet.

    Raises:
        InputError: neither has started this process.
    """
    if "RANK" in environment:
        missing = [n for n in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if n not in environment]
        if missing:
            raise InputError(missing[0], "missing", "torchrun sets it beside RANK")
        return Rendezvous(
            rank=int(environment["RANK"]),
            size=int(environment["WORLD_SIZE"]),
            address=environment["MASTER_ADDR"],
            port=int(environment["MASTER_PORT"]),
        )
    if "SLURM_PROCID" in environment:
        first, last = _PORTS
        step = 17 * int(environment.get("SLURM_JOB_ID", 0)) + int(environment.get("SLURM_STEP_ID", 0))
        nodes = environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"]
        return Rendezvous(
            rank=int(environment["SLURM_PROCID"]),
            size=int(environment["SLURM_STEP_NUM_TASKS"]),
            address=environment.get("MASTER_ADDR") or _first_host(nodes),
            port=int(environment.get("MASTER_PORT") or first + step % (last - first)),
        )
    raise InputError("RANK", "missing", "start this with torchrun or srun, or use a local pool")


def run_rank_from_environment(runs: Sequence[Run]) -> list[RunResult] | None:
    """Run a block as one rank of many; rank 0 gets the results, the others None.

    A failure raises on the rank where it happens, after it is in that rank's log; the launcher
    (torchrun, ``srun --kill-on-bad-exit``) ends the others.

    Args:
        runs: from :func:`bitpipe.runtime.block.prepare`, the same on every rank.

    Raises:
        InputError: not started by a launcher, or with another number of processes.
    """
    where = rendezvous(os.environ)
    if where.size != runs[0].job.ranks:
        raise InputError("WORLD_SIZE", where.size, f"the jobs need {runs[0].job.ranks} ranks")
    torch.set_num_threads(1)
    started = time.time()
    choose_interface(where.address)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{where.address}:{where.port}",
        rank=where.rank,
        world_size=where.size,
    )
    try:
        reports = train_block(World(rank=where.rank, size=where.size), runs)
        dist.barrier()  # nobody closes connections that another rank still reads from
    finally:
        # Models and groups refer to each other: what the collector finds only at the interpreter's
        # exit would end threads there that can no longer be joined, and the process with them.
        gc.collect()
        dist.destroy_process_group()
    return None if reports is None else finished(runs, reports, started)


def _first_host(nodes: str) -> str:
    """The first name of a Slurm node list such as ``node[3-5,9]``."""
    if "[" not in nodes:
        return nodes.split(",")[0]
    shown = subprocess.run(
        ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, timeout=30, check=True
    )
    return shown.stdout.split()[0]
