"""Half precision: loss scaling with one overflow decision for all ranks.

Weights have a half-precision copy for compute and an fp32 master for Adam; gradients of all
micro-batches are added up in fp32 (:class:`bitpipe.runtime.training.gradients.Flat`). In fp16 the loss is
multiplied by a scale, so that small gradients do not vanish, and the sums are divided by it
again (Micikevicius et al. 2018). A step whose gradients are not finite is skipped by every rank,
whichever ranks saw it: replicas must stay equal, and so must the stages' step counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from bitpipe.models.precision import PRECISIONS


class TooManySkipped(RuntimeError):
    """Gradients overflow step after step: the loss scale is not the reason."""


class LossScale:
    """The loss scale of a run, equal on all ranks.

    Attributes:
        value: what losses are multiplied by; always 1 if not ``dynamic``.
        seed: (), fp32, the gradient of the loss with which every backward starts: ``value``.
        skipped: how many steps overflowed so far.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        first: float = 65536.0,
        dynamic: bool = True,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        floor: float = 1.0,
        patience: int = 20,
    ) -> None:
        """
        Args:
            first: scale of the first step.
            dynamic: whether it changes: times ``growth`` after ``interval`` good steps in a row,
                times ``backoff`` after an overflow, but never below ``floor``.
            patience: so many overflows in a row end the run.
        """
        self.value = first
        self.skipped = 0
        self.seed = torch.full((), first, device=device)
        self._dynamic = dynamic
        self._growth, self._backoff, self._interval = growth, backoff, interval
        self._floor, self._patience = min(floor, first), patience
        self._good, self._bad = 0, 0

    @classmethod
    def of(cls, precision: str, device: torch.device) -> LossScale | None:
        """Dynamic for fp16; bf16 has the range of fp32 and only needs the decision; else None."""
        if not PRECISIONS[precision].half:
            return None
        return cls(device) if precision == "fp16" else cls(device, first=1.0, dynamic=False)

    def settle(self, sums: Sequence[Tensor]) -> bool:
        """Divide fp32 gradient sums by the scale, in place; whether all ranks must skip the step.

        Every rank calls this once per step; it blocks until all have.

        Raises:
            TooManySkipped: on every rank, after ``patience`` overflows in a row.
        """
        found = torch.zeros((), device=self.seed.device)
        torch._amp_foreach_non_finite_check_and_unscale_(list(sums), found, self.seed.reciprocal())
        anywhere = found.cpu()
        dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
        overflow = bool(anywhere.item())
        self._update(overflow)
        return overflow

    def _update(self, overflow: bool) -> None:
        self.skipped += overflow
        self._bad = self._bad + 1 if overflow else 0
        if self._bad >= self._patience:
            raise TooManySkipped(
                f"too many skipped steps: gradients overflowed {self._bad} times in a row, "
                f"the last time at loss scale {self.value:g}"
            )
        if not self._dynamic:
            return
        if overflow:
            self.value, self._good = max(self._floor, self.value * self._backoff), 0
        else:
            self._good += 1
            if self._good < self._interval:
                return
            self.value, self._good = self.value * self._growth, 0
        self.seed.fill_(self.value)
