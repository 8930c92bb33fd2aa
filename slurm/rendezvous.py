"""How the tasks of a Slurm step find each other: no port is ever chosen before it is bound."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bitpipe.runtime.processes.address import choose_interface
from experiments.records.store import write_json

KEY = "BITPIPE_POOL"
"""Variable that carries a pool's secret to its ranks; it is never logged."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """This process among the tasks of its step, from what srun says.

    Attributes:
        rank, size: among all tasks.
        local: among those of this node.
        node: number of the node in the job.
        host: name of the node as Slurm knows it.
    """

    rank: int
    size: int
    local: int
    node: int
    host: str

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Task:
        return cls(
            rank=int(environment["SLURM_PROCID"]),
            size=int(environment["SLURM_NTASKS"]),
            local=int(environment["SLURM_LOCALID"]),
            node=int(environment["SLURM_NODEID"]),
            host=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        )


def meet(task: Task, file: Path, *, backend: str, seconds: float = 120) -> Any:
    """Make the default process group; rank 0 binds a free port and says in ``file`` which.

    Raises:
        TimeoutError: rank 0 did not say so in time.
    """
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=seconds)
    choose_interface(task.host)
    if task.rank == 0:
        store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=limit)
        write_json(file, [task.host, store.port])
    else:
        host, port = _read(file, seconds)
        store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
    dist.init_process_group(backend, store=store, rank=task.rank, world_size=task.size, timeout=limit)
    return store


def _read(file: Path, seconds: float) -> tuple[str, int]:
    import json

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            host, port = json.loads(file.read_text())
        except (OSError, ValueError):
            time.sleep(0.05)
        else:
            return str(host), int(port)
    raise TimeoutError(f"rank 0 did not write {file.name} within {seconds:.0f} s")
