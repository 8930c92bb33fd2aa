"""Real time of a device that runs behind the host: marks on its stream, read after the iteration."""

from __future__ import annotations

import time
from typing import Any

from bitpipe.cluster import LinkClass
from bitpipe.runtime.clocks.clock import WallClock
from bitpipe.runtime.device import Device


class EventClock(WallClock):
    """A wall clock on the device: an operation lasts from the mark before it to the mark after it.

    Spans are pairs of marks until :meth:`settle` turns them into seconds. When a message arrives
    is not known; its span ends at NaN.
    """

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        self._start: Any = device.mark()

    def restart(self, origin: float) -> None:
        """Begin an iteration now: the device is idle."""
        self._device.synchronize()
        self._start = self._device.mark()
        super().restart(time.perf_counter())

    def begin(self, at: int) -> Any:
        return self._device.mark()

    def end(self, begun: Any) -> Any:
        """The marks around the operation that :meth:`begin` began."""
        return begun, self._device.mark()

    def send(self, link: LinkClass, size: float) -> float:
        return float("nan")

    def settle(self, spans: list[tuple[Any, Any] | None]) -> None:
        """Wait for the device, then replace marks by seconds since the start, in place."""
        self._device.synchronize()
        for at, span in enumerate(spans):
            if span is not None and not isinstance(span[0], float):
                begin, end = (self._device.seconds(self._start, mark) for mark in span)
                spans[at] = begin, end
