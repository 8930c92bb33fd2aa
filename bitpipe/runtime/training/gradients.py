"""Parameters and gradients of a rank: flat per stage, summed over replicas, stepped together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bitpipe.models.transformer import Chunk
from bitpipe.runtime.plan import Group, Plan
from bitpipe.runtime.training.optimizer import Adam
from bitpipe.runtime.training.precision import LossScale
from bitpipe.runtime.transport.transport import AllReduce, all_reduce
from bitpipe.schedule.action import Kind

_ALIGN = 16  # elements: every parameter starts on a cache line
_PIECE = 1 << 24  # words that a checksum reads at once
TIE: Group = (Kind.TIE, 0)


class NonFiniteGradient(RuntimeError):
    """A step's gradients, or the weights that they made, are infinite or NaN, though its loss was not."""


class Flat:
    """Parameters laid end to end, their gradients likewise, and the copies that Adam updates.

    Attributes:
        values: (n,) in the parameters' type; every parameter is a view of it.
        sum: (n,) float32 or float64, what is summed over micro-batches and replicas and read by
            the optimizer; every parameter's ``grad`` is a view of it.
        share: the part of them that this rank steps: everything, or an n-th where the optimizer is
            shared by n replicas.
        part: ``sum`` of that part; a buffer of its own where it is not everything.
        master: what Adam steps, ``share`` of ``values`` in float32 or float64, its ``grad`` is ``part``;
            the same memory as ``values`` unless those are narrower.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], share: int = 0, shares: int = 1) -> None:
        self.parameters = tuple(parameters)
        offsets = _offsets(self.parameters)
        length = -(-offsets[-1] // (_ALIGN * shares)) * _ALIGN
        offsets[-1] = length * shares
        self.share = slice(share * length, (share + 1) * length)
        dtype = self.parameters[0].dtype
        device = self.parameters[0].device
        self._narrow = dtype.itemsize < 4
        self.values = torch.zeros(offsets[-1], dtype=dtype, device=device)
        wide = torch.float32 if self._narrow else dtype
        self.sum = torch.zeros(offsets[-1], dtype=wide, device=device)
        for parameter, offset in zip(self.parameters, offsets, strict=False):
            place = slice(offset, offset + parameter.numel())
            self.values[place] = parameter.detach().flatten()
            parameter.data = self.values[place].view_as(parameter)
            if self._narrow:
                parameter.grad_dtype = None  # autograd then adds narrow gradients to a wide sum
            parameter.grad = self.sum[place].view_as(parameter)
        mine = self.values[self.share]
        self.part = self.sum if shares == 1 else torch.zeros_like(self.sum[self.share])
        self.master = nn.Parameter(mine.float() if self._narrow else mine)
        self.master.grad = self.part

    def narrow(self) -> None:
        """Bring the stepped weights back to the type in which they are used."""
        if self._narrow:
            self.values[self.share].copy_(self.master.detach())

    def checksum(self) -> int:
        """Equal on two replicas exactly if every bit is equal (but for a chance of 2⁻⁶⁴)."""
        words = self.values.view(torch.uint8)
        words = words[: words.numel() // 8 * 8].view(torch.int64)
        total = torch.zeros((), dtype=torch.int64, device=words.device)
        for begin in range(0, words.numel(), _PIECE):
            piece = words[begin : begin + _PIECE]
            first = 2 * begin + 1
            total += (piece * torch.arange(first, first + 2 * piece.numel(), 2, device=words.device)).sum()
        return int(total.item())

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes of parameters and of gradients, copies in higher precision included."""
        extra = self.master.numel() * 4 if self._narrow else 0
        return self.values.nbytes + extra, self.sum.nbytes


class Gradients:
    """All that happens to a rank's gradients between the last backward and the next forward.

    Gradients are sums over micro-batches of losses that are already divided by the loss tokens
    of the whole mini-batch, so the sum over replicas is the gradient of the mean loss.
    """

    def __init__(
        self,
        plan: Plan,
        chunks: Mapping[tuple[int, int], Chunk],
        groups: Mapping[Group, dist.ProcessGroup],
        *,
        learning_rate: float,
        clip_norm: float | None,
        scale: LossScale | None = None,
        all_reduce: AllReduce = all_reduce,
    ) -> None:
        """``scale``: of half-precision training."""
        self._plan = plan
        self._groups = groups
        self._clip = clip_norm
        self._all_reduce = all_reduce
        self._works: list[Any] = []
        self.scale = scale
        self._skip = False
        self.flats = _flats(plan, chunks)
        self._adam = Adam([flat.master for flat in self.flats.values()], learning_rate)
        self.norm: float | None = None

    def zero(self) -> None:
        for flat in self.flats.values():
            flat.sum.zero_()

    def issue(self, group: Group) -> None:
        """Start a collective on one stage; the gather of its weights is complete at the return."""
        kind, members = group[0], self._groups[group]
        flat = self.flats[flat_of(group)]
        if kind is Kind.GATHER:
            shares = list(flat.values.chunk(dist.get_world_size(members)))
            dist.all_gather(shares, flat.values[flat.share].clone(), group=members)
        elif kind is Kind.SCATTER:
            shares = list(flat.sum.chunk(dist.get_world_size(members)))
            self._works.append(dist.reduce_scatter(flat.part, shares, group=members, async_op=True))
        else:
            self._works.append(self._all_reduce(flat.sum, members))

    def wait(self) -> None:
        """Wait for every all-reduce, undo the loss scale, and bound the gradients' norm if asked to."""
        for work in self._works:
            work.wait()
        self._works.clear()
        if self.scale is not None:
            self._skip = self.scale.settle([flat.part for flat in self.flats.values()])
        if self._skip:
            self.norm = None
        elif self._clip is not None:
            self._bound(self._clip)

    def step(self) -> None:
        """Adam, unless gradients overflowed on any rank; replicas step alike."""
        if self._skip:
            return
        self._adam.step()
        for flat in self.flats.values():
            flat.narrow()

    def _bound(self, bound: float) -> None:
        """Scale to a global norm of at most ``bound``; every stage counts once, on its lowest rank."""
        squares = torch.zeros(1, dtype=torch.float64)
        for group, flat in self.flats.items():
            if flat.part is not flat.sum or self._plan.holders(group)[0] == self._plan.rank:
                squares += torch.linalg.vector_norm(flat.part, dtype=torch.float64).square().cpu()
        dist.all_reduce(squares)
        self.norm = math.sqrt(squares.item())
        if not math.isfinite(self.norm):
            return  # infinity times zero would be NaN; check_finite names the stage
        scale = bound / (self.norm + 1e-6)
        if scale < 1.0:
            for flat in self.flats.values():
                flat.part.mul_(scale)

    def check_finite(self, step: int) -> None:
        """Look at the sums and the weights of a step that was taken; a skipped one left both alone.

        Called after the step, outside of what is timed: it reads every gradient and weight once.

        Raises:
            NonFiniteGradient: names step, stage and which of the two.
        """
        if self._skip or not self.flats:
            return
        parts = [("gradient", flat.sum) for flat in self.flats.values()]
        parts += [("weights", flat.values) for flat in self.flats.values()]
        largest = torch.stack([torch.linalg.vector_norm(p, math.inf).double() for _, p in parts]).tolist()
        for (what, _), group, value in zip(parts, [*self.flats, *self.flats], largest, strict=True):
            if not math.isfinite(value):
                raise NonFiniteGradient(
                    f"{what} of {group[0].value}@{group[1]} {'is' if what == 'gradient' else 'are'} {value} "
                    f"in step {step}, whose loss was finite"
                )

    def check_replicas(self, when: str) -> None:
        """Compare every stage's weights between its replicas, bit by bit.

        Raises:
            RuntimeError: names the stage and the ranks that differ.
        """
        mine = {group: flat.checksum() for group, flat in self.flats.items()}
        everyone: list[dict[Group, int]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(everyone, mine)
        for group in mine:
            holders = self._plan.holders(group)
            if len({everyone[rank][group] for rank in holders}) > 1:
                raise RuntimeError(
                    f"{when}: the replicas of {group[0].value}@{group[1]} on ranks "
                    f"{', '.join(map(str, holders))} hold different weights"
                )

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes of parameters, gradients and optimizer state on this rank."""
        sizes = [flat.bytes for flat in self.flats.values()]
        return {
            "parameter_bytes": sum(size for size, _ in sizes),
            "gradient_bytes": sum(size for _, size in sizes),
            "optimizer_bytes": self._adam.bytes,
        }


def _flats(plan: Plan, chunks: Mapping[tuple[int, int], Chunk]) -> dict[Group, Flat]:
    flats = {}
    for group, parameters in _owned(plan, chunks).items():
        members = plan.groups.get((Kind.SCATTER, group[1]), (plan.rank,)) if group != TIE else (plan.rank,)
        flats[group] = Flat(parameters, members.index(plan.rank), len(members))
    return flats


def flat_of(group: Group) -> Group:
    """Which flat a collective works on: those of a stage share one."""
    kind, stage = group
    return group if kind is Kind.TIE else (Kind.SYNC, stage)


def flat_bytes(plan: Plan, chunks: Mapping[tuple[int, int], Chunk]) -> dict[Group, int]:
    """Bytes that a rank's flats would sum over replicas, from chunks that may be on ``meta``."""
    return {
        group: _offsets(parameters)[-1] * max(4, parameters[0].dtype.itemsize)
        for group, parameters in _owned(plan, chunks).items()
    }


def _owned(plan: Plan, chunks: Mapping[tuple[int, int], Chunk]) -> dict[Group, list[nn.Parameter]]:
    """A rank's parameters per stage; the tied embedding apart if it lies on two devices."""
    owned: dict[Group, list[nn.Parameter]] = {}
    tied = next((chunk.tied for chunk in chunks.values() if plan.ties and chunk.tied is not None), None)
    for (_, stage), chunk in chunks.items():
        if (Kind.SYNC, stage) not in owned:
            owned[Kind.SYNC, stage] = [p for p in chunk.parameters() if p is not tied]
    if tied is not None:
        owned[TIE] = [tied]
    return owned


def _offsets(parameters: Iterable[nn.Parameter]) -> list[int]:
    """Where each parameter starts in a flat, and where the flat ends."""
    offsets = [0]
    for parameter in parameters:
        offsets.append(offsets[-1] + -(-parameter.numel() // _ALIGN) * _ALIGN)
    return offsets
