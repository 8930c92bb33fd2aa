"""One device's row of a real schedule on one GPU, its neighbours played by a loopback.

Every message is there when it is waited for, so what is left between kernels is the
interpreter's own doing; and what the allocator gives out is what that device of the pipeline
would hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.gpu_check.tokens import RandomSource
from bitpipe.job import Job
from bitpipe.models.memory import DTYPES
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import Chunk
from bitpipe.runtime.clocks.event_clock import EventClock
from bitpipe.runtime.device import Device
from bitpipe.runtime.interpreter import Trainer
from bitpipe.runtime.member import build_chunks
from bitpipe.runtime.plan import Plan, release_points
from bitpipe.runtime.training.backward import backward
from bitpipe.runtime.training.gradients import Gradients
from bitpipe.runtime.training.precision import LossScale
from bitpipe.runtime.transport.mailbox import Sent
from bitpipe.schedule import Kind, generate, lower


class Loopback:
    """A mailbox whose messages have always arrived; what is sent goes nowhere."""

    def __init__(self, device: Device, *, slots: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._slots = [
            torch.randn(shape, dtype=torch.float32, device=device.place).mul_(1e-2).to(dtype)
            for _ in range(slots)
        ]

    def post(self, slot: int, peer: int, tag: int) -> None:
        pass

    def wait(self, slot: int, tag: int) -> tuple[Tensor, float]:
        return self._slots[slot], 0.0

    def send(self, payload: Tensor, peer: int, tag: int, stamp: float) -> Sent:
        return None, payload  # type: ignore[return-value]

    def release(self, sent: Sent) -> None:
        pass

    @property
    def bytes(self) -> int:
        """Bytes of the receive slots."""
        return sum(slot.nbytes for slot in self._slots)


@dataclass(frozen=True, kw_only=True)
class RowTimes:
    """What one device's row took and held.

    Attributes:
        interpreted, back_to_back: seconds, per pair of runs, optimizer step included.
        step: seconds of clearing, unscaling and Adam, the median.
        parameters: resident on the device.
        peak_bytes: most bytes at once.
    """

    interpreted: tuple[float, ...]
    back_to_back: tuple[float, ...]
    step: float
    parameters: int
    peak_bytes: int

    @property
    def gap(self) -> float:
        """Median over pairs of what interpreting adds to the same kernels in a plain loop."""
        pairs = zip(self.interpreted, self.back_to_back, strict=True)
        return median(a / b - 1 for a, b in pairs)


class Row:
    """Device ``number``'s part of a job, ready to run; needs a process group, of one rank."""

    def __init__(self, job: Job, number: int, device: Device) -> None:
        program = lower(generate(job.schedule), sync="none", tied=job.model.tied_embeddings)
        depth, dtype = job.schedule.depth, DTYPES[job.precision]
        layout = RankLayout(name="sequential", width=1, depth=depth, devices_per_node=depth)
        plan = Plan(program=program, layout=layout, rank=layout.rank(0, number))
        self.job, self.plan, self.device = job, plan, device
        self.chunks: Mapping[tuple[int, int], Chunk] = build_chunks(plan, job, dtype, device.place)
        self.gradients = Gradients(
            plan,
            self.chunks,
            {},
            learning_rate=job.learning_rate,
            clip_norm=None,
            scale=LossScale.of(job.precision, device.place),
        )
        shape = job.micro_batch_size, job.model.sequence, job.model.hidden
        self.mailbox = Loopback(device, slots=program.slots[number], shape=shape, dtype=dtype)
        free = Link(bandwidth=float("inf"), latency=0.0)
        self.trainer = Trainer(
            plan,
            self.chunks,
            self.gradients,
            releases=release_points(program)[number],
            mailbox=self.mailbox,
            clock=EventClock(device),
            links=Links(
                layout=layout, p2p_intra=free, p2p_inter=free, all_reduce_intra=free, all_reduce_inter=free
            ),
            boundary_bytes=0,
            board=[0, 0, 0],
        )
        self._x = torch.randn(shape, device=device.place).mul_(1e-2).to(dtype)
        source = RandomSource(job.model, job.micro_batch_size, job.schedule.micro_batches, job.seed)
        self.batches: dict[int, MicroBatch] = {
            m: source.micro_batch(0, m).to(device.place) for m in range(job.schedule.micro_batches)
        }

    def interpret(self) -> float:
        """Seconds of the row, as a rank runs it."""
        self.gradients.zero()
        self.trainer.feed(self.batches)
        begun = self._begin()
        self.trainer.run()
        return self._since(begun)

    def back_to_back(self) -> float:
        """Seconds of the same forwards, backwards and step in a plain loop."""
        self.gradients.zero()
        saved: dict[Any, Any] = {}
        scale, last = self.gradients.scale, self.plan.stages - 1
        one = torch.ones((), device=self.device.place) if scale is None else scale.seed
        begun = self._begin()
        for kind, micro_batch, stage, pipe in self.plan.actions:
            key = micro_batch, stage, pipe
            if kind is Kind.F:
                x = self._x.detach().requires_grad_() if stage else None
                y = self.chunks[pipe, stage].forward(x, self.batches[micro_batch])
                saved[key] = x, get_gradient_edge(y)
            elif kind is Kind.B:
                backward(saved.pop(key)[1], one if stage == last else self._x)
        self.gradients.wait()
        self.gradients.step()
        return self._since(begun)

    def step(self) -> float:
        """Seconds of all that an optimizer step does to parameters and gradients."""
        begun = self._begin()
        self.gradients.zero()
        self.gradients.wait()
        self.gradients.step()
        return self._since(begun)

    def resident_bytes(self) -> int:
        """Parameters, gradients, optimizer state, receive slots."""
        return sum(self.gradients.bytes.values()) + self.mailbox.bytes

    def _begin(self) -> Any:
        self.device.synchronize()
        return self.device.mark()

    def _since(self, begun: Any) -> float:
        ended = self.device.mark()
        self.device.synchronize()
        return self.device.seconds(begun, ended)


def measure_row(job: Job, number: int, device: Device, *, pairs: int = 5) -> RowTimes:
    """Run device ``number``'s row of ``job``, interpreted and plain in turn; the first run is metered."""
    before = device.allocated()
    row = Row(job, number, device)
    with device.meter(_resident(row)) as peak:
        row.interpret()
        device.synchronize()
    total = (peak.activations or 0) + row.resident_bytes() if peak.total is None else peak.total - before
    row.back_to_back()  # warm
    times = []
    for pair in range(pairs):
        runs = [row.interpret, row.back_to_back]
        found = [run() for run in (runs if pair % 2 == 0 else reversed(runs))]
        times.append(found if pair % 2 == 0 else found[::-1])
    if row.gradients.scale is not None and row.gradients.scale.skipped:
        raise RuntimeError(
            "gradients of random tensors overflowed: steps were skipped, the times mean nothing"
        )
    return RowTimes(
        interpreted=tuple(a for a, _ in times),
        back_to_back=tuple(b for _, b in times),
        step=median(row.step() for _ in range(3)),
        parameters=sum(w.numel() for flat in row.gradients.flats.values() for w in flat.parameters),
        peak_bytes=total,
    )


def _resident(row: Row) -> list[Tensor]:
    weights = [flat.values for flat in row.gradients.flats.values()]
    data = [tensor for batch in row.batches.values() for tensor in (batch.tokens, batch.labels)]
    return [*weights, *data, *row.mailbox._slots]
