"""Transport through host memory: device → pinned buffer → gloo → pinned buffer → device.

For several ranks on one GPU, which NCCL refuses, and for machines on which NCCL's peer-to-peer
does not work. A copy to the host takes its time, and gloo may only start after it; there is no
thread that waits for that: every call looks which copies have ended and starts what comes next,
first in, first out, and a rank that blocks for others first starts all of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bitpipe.runtime.device import Device, Mark
from bitpipe.runtime.transport.mailbox import Mailbox, Sent


class Staged:
    """Something that starts once a copy to the host has ended."""

    __slots__ = ("_copied", "_outbox", "_start", "_work")

    def __init__(self, outbox: Outbox, copied: Mark, start: Callable[[], dist.Work]) -> None:
        self._outbox = outbox
        self._copied = copied
        self._start = start
        self._work: dist.Work | None = None

    def start(self, *, block: bool) -> bool:
        """Start it if the copy has ended, or wait for that; whether it has started."""
        if not block and not self._copied.query():
            return False
        self._copied.synchronize()
        self._work = self._start()
        return True

    def wait(self) -> None:
        """Block until it is complete."""
        if self._work is None:
            self._outbox.flush()
        assert self._work is not None
        self._work.wait()


class Outbox:
    """All that this rank still has to start, in order."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._queue: deque[Staged] = deque()

    def put(self, source: Tensor, host: Tensor, start: Callable[[], dist.Work]) -> Staged:
        """Copy ``source`` to ``host``, then ``start``; ``source`` must live until it is complete."""
        staged = Staged(self, self._device.copy_out(source, host), start)
        self._queue.append(staged)
        self.poll()
        return staged

    def poll(self) -> None:
        """Start what is ready."""
        while self._queue and self._queue[0].start(block=False):
            self._queue.popleft()

    def flush(self) -> None:
        """Start everything, waiting for copies."""
        while self._queue:
            self._queue.popleft().start(block=True)


class StagedMailbox(Mailbox):
    """Messages between devices; every slot has a twin in host memory."""

    def __init__(
        self, device: Device, outbox: Outbox, *, slots: int, shape: Sequence[int], dtype: torch.dtype
    ) -> None:
        self._device = device
        self._outbox = outbox
        super().__init__(slots=slots, shape=shape, dtype=dtype)

    def _allocate(self, slots: int, shape: Sequence[int], dtype: torch.dtype) -> None:
        self._shape, self._dtype = tuple(shape), dtype
        self._slots = [self._device.host_buffer(shape, dtype) for _ in range(slots)]
        self._twins = [torch.empty(*shape, dtype=dtype, device=self._device.place) for _ in range(slots)]
        self._emptied: list[Mark | None] = [None] * slots
        self._free: list[Tensor] = []

    def post(self, slot: int, peer: int, tag: int) -> None:
        self._outbox.poll()
        emptied = self._emptied[slot]
        if emptied is not None:  # its last message may still be on its way to the device
            emptied.synchronize()
            self._emptied[slot] = None
        super().post(slot, peer, tag)

    def wait(self, slot: int, tag: int) -> tuple[Tensor, float]:
        self._outbox.flush()
        host, stamp = super().wait(slot, tag)
        self._emptied[slot] = self._device.copy_in(host, self._twins[slot])
        return self._twins[slot], stamp

    def send(self, payload: Tensor, peer: int, tag: int, stamp: float) -> Sent:
        payload = payload.contiguous()
        host = self._free.pop() if self._free else self._device.host_buffer(self._shape, self._dtype)
        staged: Any = self._outbox.put(payload, host, lambda: self._gloo.send([host], peer, tag))
        return staged, (host, payload)

    def release(self, sent: Sent) -> None:
        super().release(sent)
        self._free.append(sent[1][0])

    @property
    def bytes(self) -> int:
        """Bytes of the receive slots on the device."""
        return sum(twin.nbytes for twin in self._twins)


class _Reduction:
    """An all-reduce whose result comes back to the device when it is waited for."""

    def __init__(self, device: Device, staged: Staged, host: Tensor, target: Tensor) -> None:
        self._device, self._staged, self._host, self._target = device, staged, host, target

    def wait(self) -> None:
        self._staged.wait()
        self._device.copy_in(self._host, self._target)


class StagedReduce:
    """Sums tensors over ranks in host memory; keeps one buffer per tensor."""

    def __init__(self, device: Device, outbox: Outbox) -> None:
        self._device = device
        self._outbox = outbox
        self._hosts: dict[int, Tensor] = {}

    def __call__(self, tensor: Tensor, group: dist.ProcessGroup) -> Any:
        """Start the sum; ``wait()`` on what it returns brings the result into ``tensor``."""
        key = tensor.data_ptr()
        if key not in self._hosts:
            self._hosts[key] = self._device.host_buffer(tensor.shape, tensor.dtype)
        host = self._hosts[key]

        def start() -> dist.Work:
            work: dist.Work = dist.all_reduce(host, group=group, async_op=True)
            return work

        return _Reduction(self._device, self._outbox.put(tensor, host, start), host, tensor)
