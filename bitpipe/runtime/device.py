"""A rank's device: a GPU with its streams and events, or the host behind the same few calls.

Compute runs on the device's default stream; only copies to the host have a stream of their own.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from bitpipe.errors import InputError
from bitpipe.models.memory import ActivationMeter


class Mark(Protocol):
    """A point on a stream."""

    def query(self) -> bool:
        """Whether the device has passed it."""

    def synchronize(self) -> None:
        """Block until it has."""


@dataclass
class Peak:
    """Most bytes at once, known when the measurement has ended.

    Attributes:
        activations: what autograd kept; None where only the total is known.
        total: all that the allocator gave out; None where only activations are known.
    """

    activations: int | None = None
    total: int | None = None


class Device(Protocol):
    """What the runtime asks of a device.

    Attributes:
        place: as torch calls it.
        name: as its vendor calls it.
    """

    place: torch.device
    name: str

    def host_buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Uninitialised host memory that the device can copy to and from while it computes."""

    def mark(self) -> Any:
        """A point in time on the compute stream."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks that the device has passed."""

    def copy_out(self, source: Tensor, host: Tensor) -> Mark:
        """Start copying what compute has produced so far to the host, beside later compute.

        ``source`` must live until the returned mark has been passed.
        """

    def copy_in(self, host: Tensor, target: Tensor) -> Mark:
        """Copy from the host, in line with compute; the mark says when ``host`` is free again."""

    def synchronize(self) -> None:
        """Block until the device has done all that it was asked to."""

    def allocated(self) -> int:
        """Bytes that tensors of this process occupy now; 0 where that is not known."""

    def meter(self, resident: Iterable[Tensor]) -> contextlib.AbstractContextManager[Peak]:
        """Measure the memory peak of a block; ``resident`` tensors are no activations."""


class _Now:
    """A point in the host's time: always passed."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Host:
    """The CPU: everything has happened when the call returns."""

    def __init__(self) -> None:
        self.place = torch.device("cpu")
        self.name = "cpu"

    def host_buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype)

    def mark(self) -> _Now:
        return _Now()

    def seconds(self, begin: _Now, end: _Now) -> float:
        return end.seconds - begin.seconds

    def copy_out(self, source: Tensor, host: Tensor) -> Mark:
        host.copy_(source)
        return _Now()

    def copy_in(self, host: Tensor, target: Tensor) -> Mark:
        target.copy_(host)
        return _Now()

    def synchronize(self) -> None:
        pass

    def allocated(self) -> int:
        return 0

    @contextlib.contextmanager
    def meter(self, resident: Iterable[Tensor]) -> Iterator[Peak]:
        peak = Peak()
        with ActivationMeter(resident) as meter:
            yield peak
        peak.activations = meter.peak


class Gpu:
    """One CUDA device of this process.

    Raises:
        InputError: CUDA cannot be used here; says why in one line.
    """

    def __init__(self, index: int = 0) -> None:
        require_cuda()
        torch.cuda.set_device(index)
        self.place = torch.device("cuda", index)
        self.name = torch.cuda.get_device_name(index)
        self._out: Any = torch.cuda.Stream(self.place, priority=-1)  # type: ignore[no-untyped-call]

    @property
    def identity(self) -> str:
        """The same for two processes exactly if they hold the same GPU."""
        return str(torch.cuda.get_device_properties(self.place).uuid)

    def host_buffer(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype, pin_memory=True)

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(begin.elapsed_time(end)) / 1000

    def copy_out(self, source: Tensor, host: Tensor) -> Mark:
        self._out.wait_stream(torch.cuda.current_stream(self.place))
        with torch.cuda.stream(self._out):
            host.copy_(source, non_blocking=True)
        copied: Mark = self._out.record_event()
        return copied

    def copy_in(self, host: Tensor, target: Tensor) -> Mark:
        target.copy_(host, non_blocking=True)
        copied: Mark = torch.cuda.current_stream(self.place).record_event()
        return copied

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.place)

    def allocated(self) -> int:
        return torch.cuda.memory_allocated(self.place)

    @contextlib.contextmanager
    def meter(self, resident: Iterable[Tensor]) -> Iterator[Peak]:
        peak = Peak()
        torch.cuda.reset_peak_memory_stats(self.place)
        yield peak
        peak.total = torch.cuda.max_memory_allocated(self.place)


def obstacle() -> str | None:
    """Why CUDA cannot be used in this process, in one phrase; None if it can."""
    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if torch.cuda.is_available():
            return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={visible} hides every GPU"
    return f"no GPU is visible, or its driver is too old for CUDA {torch.version.cuda}"


def require_cuda() -> None:
    """Refuse to go on where CUDA cannot be used.

    Raises:
        InputError: with the reason.
    """
    reason = obstacle()
    if reason is not None:
        raise InputError("device", "cuda", reason, "device=cpu runs here")
