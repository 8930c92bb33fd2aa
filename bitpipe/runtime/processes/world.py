"""A rank's own view of its world, the same whether a pool, torchrun or srun started it."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.distributed as dist

from bitpipe.runtime.plan import Group

IDLE, BUSY, WAITING = -2, -4, -3
"""Marks on the board outside a program's row; odd numbers mean waiting for other ranks."""


class Board(Protocol):
    """Three numbers that the launcher sees: job, iteration, mark.

    A mark is twice the position in the row, plus one where the rank may wait for others.
    """

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...


@dataclass
class World:
    """This rank among all ranks.

    Attributes:
        rank, size: in the default process group.
        board: what the launcher sees of this rank.
    """

    rank: int
    size: int
    board: Board = field(default_factory=lambda: [0, 0, IDLE])
    _groups: dict[tuple[tuple[int, ...], str, str], Any] = field(default_factory=dict)

    @cached_property
    def host(self) -> str:
        """Name of this rank's machine."""
        return socket.gethostname()

    @cached_property
    def local(self) -> int:
        """This rank's number among those of its machine; all ranks ask together."""
        hosts = [""] * self.size
        dist.all_gather_object(hosts, self.host)
        return hosts[: self.rank].count(self.host)

    def groups(
        self, members: Mapping[Group, tuple[int, ...]], backend: str = "gloo"
    ) -> dict[Group, dist.ProcessGroup]:
        """A process group for every all-reduce that this rank takes part in.

        Every rank asks for the same groups in the same order, also for those that it is not in:
        torch names a group by how many came before. Groups with equal members are one:
        all-reduces of a rank run one after another anyway.
        """
        found: dict[Group, dist.ProcessGroup] = {}
        for group, ranks in members.items():
            made = self.group(ranks, backend)
            if self.rank in ranks:
                found[group] = made
        return found

    def group(self, ranks: tuple[int, ...], backend: str = "gloo", use: str = "") -> dist.ProcessGroup:
        """The process group of ``ranks``, made when first asked for; all ranks ask, in one order.

        Args:
            use: groups of the same ranks for different uses are different groups.
        """
        key = ranks, backend, use
        if key not in self._groups:
            self._groups[key] = dist.new_group(list(ranks), backend=backend, pg_options=_options(backend))
        made: dist.ProcessGroup = self._groups[key]
        return made


def _options(backend: str) -> Any:
    """Communication streams of high priority, where there are streams; one object per group."""
    if backend != "nccl":
        return None
    options: Any = dist.ProcessGroupNCCL.Options()
    options.is_high_priority_stream = True
    return options


def settle() -> None:
    """One thread per rank, and no garbage collection inside what is timed.

    What is there already is frozen, so that collecting costs next to nothing the next time.
    """
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    gc.disable()


def scrub_environment() -> None:
    """Forget an interactive allocation: local ranks are not Slurm's."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "PMI_", "PMIX_")) and name != "SLURM_CONF":
            del os.environ[name]
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
