"""One task of a step: ``python -m slurm.rank HOST:PORT``, started by srun; a rank of the pool."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection

from experiments.records.provenance import versions
from slurm.rendezvous import KEY, Task

_BEAT = 0.1  # seconds between looks at what to show
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> int:
    """Connect to the pool and serve it until it goes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # with the step daemon
    task = Task.here()
    host, _, port = arguments[0].rpartition(":")
    key = bytes.fromhex(os.environ.pop(KEY))
    step = f"{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
    pipe, line = (_connect(host, int(port), key, task, purpose, step) for purpose in ("call", "show"))
    board = (ctypes.c_int64 * 3)()
    mine = memoryview(board).cast("B").cast("q")
    threading.Thread(target=_show, args=(line, mine), daemon=True).start()

    from bitpipe.runtime.processes.rank_process import answer

    answer(task.rank, task.size, pipe, mine, task.host)
    return 0


def _connect(host: str, port: int, key: bytes, task: Task, purpose: str, step: str) -> Connection:
    connection = Client((host, port), authkey=key)
    ahead = time.time() - time.monotonic()  # machines agree on the time of day only
    here = (os.getpid(), socket.gethostname(), task.host)
    connection.send((task.rank, purpose, *here, step, ahead, versions()))
    return connection


def _show(line: Connection, mine: memoryview) -> None:
    """Say where this rank is whenever that has changed; without the pool there is no reason to live."""
    threading.Thread(target=_until_gone, args=(line,), daemon=True).start()
    before: list[int] = []
    while True:
        now = mine.tolist()
        if now != before:
            try:
                line.send(now)
            except OSError:
                os._exit(1)
            before = now
        time.sleep(_BEAT)


def _until_gone(line: Connection) -> None:
    try:
        line.recv()
    except (EOFError, OSError):
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
