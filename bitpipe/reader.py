"""What a command does when the reader of its output (head, a pager) has seen enough."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

STATUS = 128 + signal.SIGPIPE
"""As the shell reports a command that its reader left."""


def until_reader_leaves(command: Callable[[], int]) -> int:
    """Run a command and return its exit status; :data:`STATUS`, quietly, if the reader leaves before its end.

    Raises:
        BrokenPipeError: of another pipe than standard output.
    """
    try:
        status = command()
        sys.stdout.flush()  # else the interpreter does it at exit, where nobody can catch the error
    except BrokenPipeError:
        if not _left(sys.stdout.fileno()):
            raise
        # Keep the interpreter from flushing into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return STATUS
    return status


def _left(descriptor: int) -> bool:
    """Whether nobody can read any more what is written there."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
