"""Transport between GPUs: NCCL, with a communicator for every ordered pair of ranks.

PyTorch runs sends to and receives from one peer on one stream per process group. Two groups per
pair, one for each direction, keep them apart; the sender's order is the receiver's
(:mod:`bitpipe.runtime.transport.channels` proves that this ends). ``wait`` on NCCL's work makes the
compute stream wait, not the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bitpipe.errors import InputError
from bitpipe.runtime.device import Gpu
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.transport.channels import Channel
from bitpipe.runtime.transport.mailbox import Sent


def require_nccl(gpu: Gpu, world: World) -> None:
    """Every rank must have a GPU to itself.

    Raises:
        InputError: this torch has no NCCL, or two ranks share a GPU.
    """
    if not dist.is_nccl_available():
        raise InputError("transport", "nccl", "this torch is built without NCCL", "transport=staged works")
    everyone: list[tuple[str, str]] = [("", "")] * world.size
    dist.all_gather_object(everyone, (world.host, gpu.identity))
    mine = [rank for rank, holder in enumerate(everyone) if holder == (world.host, gpu.identity)]
    if len(mine) > 1:
        raise InputError(
            "transport",
            "nccl",
            f"ranks {', '.join(map(str, mine))} share a GPU of {world.host}; NCCL needs one per rank",
            "transport=staged lets ranks share a GPU",
        )


def open_channels(
    channels: Sequence[Channel], world: World, gpu: Gpu
) -> tuple[dict[int, dist.ProcessGroup], dict[int, dist.ProcessGroup]]:
    """(by target, by source): this rank's process groups for sending and for receiving.

    NCCL connects two ranks when they first talk, and blocks the host until both do. So all
    channels are opened here, in one order for all ranks, by a message of one number.
    """
    outgoing: dict[int, dist.ProcessGroup] = {}
    incoming: dict[int, dist.ProcessGroup] = {}
    greeting = torch.zeros(1, device=gpu.place)
    for source, target in channels:
        group = world.group((source, target), "nccl", use=f"{source}→{target}")
        if world.rank == source:
            outgoing[target] = group
            dist.send(greeting, target, group=group)
        elif world.rank == target:
            incoming[source] = group
            dist.recv(greeting, source, group=group)
    gpu.synchronize()
    return outgoing, incoming


def open_groups(groups: Mapping[Any, dist.ProcessGroup], gpu: Gpu) -> None:
    """Connect the members of every all-reduce group, in one order for all ranks."""
    greeting = torch.zeros(1, device=gpu.place)
    for group in dict.fromkeys(groups.values()):
        dist.all_reduce(greeting, group=group)
    gpu.synchronize()


class NcclMailbox:
    """Receives into numbered slots and sends, all on the device; there are no tags."""

    def __init__(
        self,
        outgoing: Mapping[int, dist.ProcessGroup],
        incoming: Mapping[int, dist.ProcessGroup],
        gpu: Gpu,
        *,
        slots: int,
        shape: Sequence[int],
        dtype: torch.dtype,
    ) -> None:
        self._outgoing, self._incoming = outgoing, incoming
        self._slots = [torch.empty(*shape, dtype=dtype, device=gpu.place) for _ in range(slots)]
        self._works: list[dist.Work | None] = [None] * slots

    def post(self, slot: int, peer: int, tag: int) -> None:
        """Queue the receive of the next message of ``peer``; it begins behind all compute so far."""
        self._works[slot] = dist.irecv(self._slots[slot], peer, group=self._incoming[peer])

    def wait(self, slot: int, tag: int) -> tuple[Tensor, float]:
        """Let compute wait for it."""
        work = self._works[slot]
        assert work is not None
        work.wait()
        self._works[slot] = None
        return self._slots[slot], 0.0

    def send(self, payload: Tensor, peer: int, tag: int, stamp: float) -> Sent:
        """Queue a send behind all compute so far; its memory must stay until :meth:`release`."""
        payload = payload.contiguous()
        work = dist.isend(payload, peer, group=self._outgoing[peer])
        assert work is not None
        return work, payload

    def release(self, sent: Sent) -> None:
        """Let compute wait for a send, so that later work may overwrite its memory."""
        sent[0].wait()

    @property
    def bytes(self) -> int:
        """Bytes of the receive slots."""
        return sum(slot.nbytes for slot in self._slots)
