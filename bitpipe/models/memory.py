"""Memory without a GPU: what autograd keeps, counted."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import torch
from torch import Tensor

from bitpipe.models.precision import PRECISIONS

DTYPES = {name: getattr(torch, precision.dtype) for name, precision in PRECISIONS.items()}


class _Kept:
    """One saved tensor; counts its storage while it lives."""

    __slots__ = ("key", "meter", "tensor")

    def __init__(self, meter: ActivationMeter, key: int, tensor: Tensor) -> None:
        self.meter = meter
        self.key = key
        self.tensor = tensor

    def __del__(self) -> None:
        self.meter._release(self.key)


class ActivationMeter:
    """Bytes that autograd keeps for backward, by unique storage; parameters do not count.

    Use it as a context around forwards; backwards may come later. It costs about a microsecond
    per saved tensor and changes no result. Inputs count: a boundary activation that a stage
    received is kept by its first layer.

    Attributes:
        current: bytes kept now.
        peak: the most since the last :meth:`reset`.
    """

    def __init__(self, excluded: Iterable[Tensor] = ()) -> None:
        """``excluded``: parameters and what else is resident anyway."""
        self.current = 0
        self.peak = 0
        self._count: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        self._excluded = {tensor.untyped_storage()._cdata for tensor in excluded}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def reset(self) -> None:
        """Forget the peak."""
        self.peak = self.current

    def __enter__(self) -> ActivationMeter:
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    def _pack(self, tensor: Tensor) -> Tensor | _Kept:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._excluded:
            return tensor
        uses = self._count.get(key, 0)
        self._count[key] = uses + 1
        if not uses:
            size = storage.nbytes()
            self._bytes[key] = size
            self.current += size
            if self.current > self.peak:
                self.peak = self.current
        return _Kept(self, key, tensor.detach())  # an output would keep its own graph alive

    @staticmethod
    def _unpack(kept: Tensor | _Kept) -> Tensor:
        return kept.tensor if isinstance(kept, _Kept) else kept

    def _release(self, key: int) -> None:
        uses = self._count[key] - 1
        if uses:
            self._count[key] = uses
        else:
            del self._count[key]
            self.current -= self._bytes.pop(key)
