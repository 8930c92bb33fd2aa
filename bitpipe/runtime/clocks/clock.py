"""Four ways to tell the time of a rank, one interface.

* :class:`WallClock`: real time. Seconds mean what they say only if every rank has a core.
* :class:`VirtualClock`: an operation lasts what the rank's own thread spent on it; a message carries
  its arrival time by the rules of :mod:`bitpipe.cluster.links`.
* :class:`CountedClock`: the same, but an operation counts what it costs on average
  (:mod:`bitpipe.runtime.clocks.pooling`).
* :class:`DeadlineClock`: nothing is computed; an operation lasts its nominal time, and the rank
  sleeps until the absolute time at which it would end, so delays do not add up.

Times are seconds since the start of the iteration, the same instant on every rank.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bitpipe.cluster import LinkClass, Links
from bitpipe.origin import Origin
from bitpipe.runtime.plan import Group

CLOCKS = {"virtual": Origin.VIRTUAL, "deadline": Origin.EMULATED, "wall": Origin.MEASURED}
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True, kw_only=True)
class Nominal:
    """What operations last under the deadline clock, in seconds; a backward is split in half.

    Attributes:
        forward, backward: of one chunk.
        step: of the optimizer.
    """

    forward: float
    backward: float
    step: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Issue:
    """A rank has reached a SYNC or TIE at ``issued``; its egress port drains at ``drained``."""

    group: Group
    issued: float
    drained: float


class WallClock:
    """Real time; messages carry no stamp."""

    stamped = False

    def __init__(self) -> None:
        self.origin = 0.0
        self.issues: list[Issue] = []

    def restart(self, origin: float) -> None:
        """Begin an iteration at ``origin`` (``time.perf_counter``)."""
        self.origin = origin
        self.issues = []

    def begin(self, at: int) -> float:
        """Begin the operation at position ``at`` of the rank's row."""
        return time.perf_counter()

    def end(self, begun: float) -> tuple[float, float]:
        """(start, end) of the operation that :meth:`begin` began."""
        return begun - self.origin, time.perf_counter() - self.origin

    @property
    def now(self) -> float:
        return time.perf_counter() - self.origin

    def receive(self, stamp: float) -> None:
        """A message has arrived; its receiver knows."""

    def send(self, link: LinkClass, size: float) -> float:
        return self.now

    def issue(self, group: Group, link: LinkClass) -> None:
        self.issues.append(Issue(group=group, issued=self.now, drained=0.0))


class VirtualClock:
    """The time that this rank would show if it had a core and the modelled links to itself."""

    stamped = True

    def __init__(self, links: Links) -> None:
        self._links = links
        self.now = 0.0
        self._port: dict[LinkClass, float] = {}
        self.issues: list[Issue] = []

    def restart(self, origin: float = 0.0) -> None:
        """Begin an iteration at 0."""
        self.now = 0.0
        self._port = dict.fromkeys(LinkClass, 0.0)
        self.issues = []

    def begin(self, at: int) -> float:
        """Begin the operation at position ``at`` of the rank's row."""
        return time.thread_time()

    def end(self, begun: float) -> tuple[float, float]:
        """(start, end) of the operation that :meth:`begin` began."""
        return self._pass(time.thread_time() - begun)

    def _pass(self, seconds: float) -> tuple[float, float]:
        start = self.now
        self.now = start + seconds
        return start, self.now

    def receive(self, stamp: float) -> None:
        """Wait for a message that arrives at ``stamp``."""
        self.now = max(self.now, stamp)

    def send(self, link: LinkClass, size: float) -> float:
        """Put ``size`` bytes on the egress port of ``link``; returns the arrival time."""
        free = max(self.now, self._port[link]) + self._links.occupancy(link, size)
        self._port[link] = free
        return free + self._links.latency(link)

    def issue(self, group: Group, link: LinkClass) -> None:
        """Start an all-reduce; :func:`resolve` finds out when it ends."""
        self.issues.append(Issue(group=group, issued=self.now, drained=self._port[link]))


class CountedClock(VirtualClock):
    """A virtual clock on which every operation lasts what it is said to cost."""

    def __init__(self, links: Links, seconds: Mapping[int, float]) -> None:
        """``seconds``: of the operation at a position of the rank's row."""
        super().__init__(links)
        self._seconds = seconds

    def begin(self, at: int) -> float:
        return self._seconds[at]

    def end(self, begun: float) -> tuple[float, float]:
        return self._pass(begun)


class DeadlineClock(VirtualClock):
    """A virtual clock that the rank keeps up with by sleeping.

    Attributes:
        lag: the largest delay, so far in this iteration, of an operation's real end behind its
            nominal one, in seconds.
    """

    def __init__(self, links: Links) -> None:
        super().__init__(links)
        self.lag = 0.0
        self.finished = 0.0
        self._start = 0.0
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake after 1 ns of slack, not 50 µs

    def restart(self, origin: float = 0.0) -> None:
        """Begin an iteration at ``origin`` (``time.monotonic``)."""
        super().restart()
        self._start = origin
        self.lag = 0.0
        self.finished = 0.0

    def spend(self, seconds: float) -> tuple[float, float]:
        """Let an operation of ``seconds`` pass; returns its nominal (start, end)."""
        start = self.now
        self.now = start + seconds
        left = self._start + self.now - time.monotonic()
        if left > 0:
            time.sleep(left)
        self.finished = time.monotonic() - self._start
        self.lag = max(self.lag, self.finished - self.now)
        return start, self.now


Clock = WallClock | VirtualClock


def resolve(
    issues: Sequence[Sequence[Issue]],
    members: Mapping[Group, Sequence[int]],
    seconds: Callable[[Group], float],
) -> dict[Group, tuple[float, float]]:
    """(start, end) of every all-reduce, from when each rank issued it.

    ``issues[rank]`` is in program order, which is the order of the rank's communication stream.
    An all-reduce starts when every member has issued it, every member's stream is free and every
    member's egress port has drained what went before; it lasts ``seconds(group)``.

    Raises:
        ValueError: the ranks' orders contradict each other.
    """
    heads = [0] * len(issues)
    free = [0.0] * len(issues)
    spans: dict[Group, tuple[float, float]] = {}
    total = sum(len(row) for row in issues)
    passed = 0
    while passed < total:
        ready = next(
            (
                row[head].group
                for row, head in zip(issues, heads, strict=True)
                if head < len(row)
                and all(
                    heads[rank] < len(issues[rank]) and issues[rank][heads[rank]].group == row[head].group
                    for rank in members[row[head].group]
                )
            ),
            None,
        )
        if ready is None:
            raise ValueError("the ranks issue their all-reduces in orders that contradict each other")
        start = 0.0
        for rank in members[ready]:
            issue = issues[rank][heads[rank]]
            start = max(start, issue.issued, issue.drained, free[rank])
        end = start + seconds(ready)
        spans[ready] = start, end
        for rank in members[ready]:
            heads[rank] += 1
            free[rank] = end
            passed += 1
    return spans
