"""A run's transport on one rank: mailbox, groups and all-reduce, by target."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bitpipe.errors import InputError
from bitpipe.runtime.device import Device, Gpu, Host, require_cuda
from bitpipe.runtime.plan import Group, Plan
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.target import Target
from bitpipe.runtime.transport.channels import channels_of
from bitpipe.runtime.transport.mailbox import Mailbox, StampedMailbox
from bitpipe.runtime.transport.nccl import NcclMailbox, open_channels, open_groups, require_nccl
from bitpipe.runtime.transport.staged import Outbox, StagedMailbox, StagedReduce
from bitpipe.schedule.action import Kind

_QUEUES = "32"
"""Work queues of a GPU, the most that CUDA gives (8 by default). A rank has a stream per neighbour
and direction (:func:`bitpipe.runtime.transport.channels.streams`), and two streams in one queue would wait
for each other where the program does not say so."""

AllReduce = Callable[[Tensor, dist.ProcessGroup], Any]
"""Start a sum over a group's ranks; ``wait()`` on what it returns completes it."""


@dataclass(frozen=True, kw_only=True)
class Transport:
    """What carries this rank's tensors.

    Attributes:
        mailbox: messages of the pipeline.
        groups: process groups of the all-reduces that this rank takes part in.
        all_reduce: how gradients are summed over one of them.
    """

    mailbox: Mailbox | NcclMailbox
    groups: Mapping[Group, dist.ProcessGroup]
    all_reduce: AllReduce


def all_reduce(tensor: Tensor, group: dist.ProcessGroup) -> Any:
    """Sum in place, where the tensor lies."""
    return dist.all_reduce(tensor, group=group, async_op=True)


def device_of(target: Target, world: World) -> Device:
    """This rank's device: GPUs are dealt to the ranks of a machine in turn.

    Raises:
        InputError: there is none, or NCCL would have to share it.
    """
    if target.device == "cpu":
        return Host()
    if target.transport == "nccl":
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", _QUEUES)
    require_cuda()
    gpu = Gpu(world.local % torch.cuda.device_count())
    if target.transport == "nccl":
        require_nccl(gpu, world)
    return gpu


def open_transport(
    target: Target,
    plan: Plan,
    world: World,
    device: Device,
    *,
    shape: Sequence[int],
    dtype: torch.dtype,
    stamped: bool,
) -> Transport:
    """Make process groups and buffers; all ranks call this together.

    Args:
        shape, dtype: of a message.
        stamped: messages carry their arrival time (gloo only).
    """
    slots = plan.program.slots[plan.device]
    if target.transport == "nccl":
        assert isinstance(device, Gpu)
        groups = world.groups(plan.groups, "nccl")
        open_groups(groups, device)
        outgoing, incoming = open_channels(channels_of(plan.program, plan.layout), world, device)
        box = NcclMailbox(outgoing, incoming, device, slots=slots, shape=shape, dtype=dtype)
        return Transport(mailbox=box, groups=groups, all_reduce=all_reduce)
    groups = world.groups(plan.groups)
    if target.transport == "staged":
        if any(kind is Kind.SCATTER for kind, _ in groups):
            raise InputError("transport", "staged", "carries all-reduces only", "nearest: nccl or gloo")
        outbox = Outbox(device)
        staged = StagedMailbox(device, outbox, slots=slots, shape=shape, dtype=dtype)
        return Transport(mailbox=staged, groups=groups, all_reduce=StagedReduce(device, outbox))
    kind = StampedMailbox if stamped else Mailbox
    plain = kind(slots=slots, shape=shape, dtype=dtype)
    return Transport(mailbox=plain, groups=groups, all_reduce=all_reduce)
