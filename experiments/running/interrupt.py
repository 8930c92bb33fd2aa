"""SIGINT and SIGTERM of the command line: one line, in order, with the shell's exit status."""

from __future__ import annotations

import signal
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM; whatever cleans up after Ctrl-C cleans up after it."""


def catch() -> None:
    """From now on both signals raise: there may be ranks to stop and records to write.

    Until then the entry point leaves at once. A signal that this process was told to ignore
    stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _terminate)


def signal_of(error: KeyboardInterrupt) -> signal.Signals:
    """The signal that raised it."""
    return signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not break into the cleaning up
    raise Terminated
