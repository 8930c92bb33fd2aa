"""How a rank's end becomes one cause: the culprit, not those that it took down with it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from bitpipe.runtime.result import Cause

_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a rank managed to say before it ended.

    Attributes:
        rank: who.
        time: ``time.monotonic`` when it raised.
        kind: the exception's type.
        message: its text, notes included.
        traceback: all of it.
        memory: whose memory ran out: ``device``, ``host``, or empty.
    """

    rank: int
    time: float
    kind: str
    message: str
    traceback: str
    memory: str


@dataclass(frozen=True, kw_only=True)
class Death:
    """A rank's process has ended by itself with ``code`` (negative: by a signal) and no report."""

    rank: int
    code: int
    time: float


class RankFailure(RuntimeError):
    """A task ended early on some rank; the pool's processes are gone.

    Attributes:
        status: ``failed``, ``timeout`` or ``oom``.
        cause: the culprit.
        job: number of the job that the culprit was running; negative where the ranks did not even
            start, so that no job is to blame and none can run.
    """

    def __init__(self, status: str, cause: Cause, job: int) -> None:
        self.status = status
        self.cause = cause
        self.job = job
        super().__init__(cause.message)


def memory_of(error: BaseException) -> str:
    """Whose memory an exception says ran out: ``device``, ``host``, or empty.

    Only the device's is a result: what it holds is part of the machine that a cell describes. The
    host's depends on limits and neighbours, so the same cell may run another time.
    """
    text = str(error).lower()
    if type(error).__name__ == "OutOfMemoryError" or ("cuda" in text and "out of memory" in text):
        return "device"
    if isinstance(error, MemoryError) or any(word in text for word in _MEMORY_WORDS):
        return "host"
    return ""


def first_cause(
    reports: Sequence[Report], deaths: Sequence[Death], where: Sequence[str]
) -> tuple[str, Cause]:
    """(status, cause) of a failed task.

    A rank that died without a word comes first: its neighbours' connection errors follow within
    milliseconds, and may be noticed before the death is. Otherwise the earliest report counts.
    """
    if deaths:
        death = min(deaths, key=lambda d: d.time)
        place = where[death.rank]
        if death.code < 0:
            name = signal.Signals(-death.code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            message = f"{place}: killed by {name}{hint}"
            cause = Cause(kind="signal", message=message, rank=death.rank, signal=name, time=death.time)
            return "failed", cause
        message = f"{place}: exited with status {death.code}"
        return "failed", Cause(kind="exception", message=message, rank=death.rank, time=death.time)
    first = min(reports, key=lambda r: r.time)
    text = first.message.strip().splitlines()
    message = f"{where[first.rank]}: {first.kind}: {text[0] if text else ''}"
    cause = Cause(
        kind="memory" if first.memory else "exception",
        message=message,
        rank=first.rank,
        traceback=first.traceback,
        time=first.time,
    )
    return ("oom" if first.memory == "device" else "failed"), cause
