"""What runs in a pool's rank process; importing it imports all that a rank needs."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import pickle
import select
import shutil
import signal
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined]

from bitpipe.runtime import train as train
from bitpipe.runtime.processes.address import choose_interface
from bitpipe.runtime.processes.failure import Report, memory_of
from bitpipe.runtime.processes.world import IDLE, World, scrub_environment

_PR_SET_PDEATHSIG = 1
_GLOO_TIMEOUT = datetime.timedelta(hours=24)  # the pool's watchdog is faster, and knows who hangs


def serve(rank: int, size: int, pipe: Connection, board: Any, store: str) -> None:
    """A rank that a pool forked on its own machine: serve the pool until the pipe closes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; the pool decides
    threading.Thread(target=_die_with, args=(pipe.fileno(), store), daemon=True).start()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mine = memoryview(board).cast("B").cast("q")[3 * rank : 3 * rank + 3]
    answer(rank, size, pipe, mine, file=store)


def _die_with(pipe: int, store: str) -> None:
    """End this process, whatever it is doing, when the pool's end of the pipe is gone.

    The signal above comes only with the death of the fork server, and that lives as long as a
    rank does. Only the launcher holds the other end, so its death, by any means, hangs up.
    """
    hung_up = select.poll()
    hung_up.register(pipe, 0)  # a hang-up is always told; what there is to read is the main thread's
    hung_up.poll()
    shutil.rmtree(Path(store).parent, ignore_errors=True)  # the pool may not have come to it
    os._exit(1)


def answer(
    rank: int,
    size: int,
    pipe: Connection,
    mine: memoryview,
    host: str | None = None,
    *,
    file: str | None = None,
) -> None:
    """Join the world, then run what comes through the pipe until it closes.

    Args:
        rank, size: in the world.
        pipe: to the pool.
        mine: three numbers that the pool sees: job, iteration, mark.
        host: this machine, as ranks on others reach it; None if all are on this one.
        file: where ranks of one machine meet.
    """
    scrub_environment()
    torch.set_num_threads(1)
    mine[2] = IDLE
    try:
        _join(rank, size, pipe, host, file)
        world = World(rank=rank, size=size, board=mine)
        pipe.send("ready")
        while True:
            try:
                task = pipe.recv_bytes()
            except EOFError:  # the pool is done
                os._exit(0)
            function, arguments = pickle.loads(task)
            del task
            value = function(world, *arguments)
            mine[0], mine[1], mine[2] = 0, -1, IDLE
            pipe.send(value if rank == 0 else None)
            del value, arguments
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(
                Report(
                    rank=rank,
                    time=time.monotonic(),
                    kind=type(error).__name__,
                    message=str(error),
                    traceback="".join(traceback.format_exception(error)),
                    memory=memory_of(error),
                )
            )
        os._exit(1)


def _join(rank: int, size: int, pipe: Connection, host: str | None, path: str | None) -> None:
    """Meet the other ranks: on one machine in a file, across machines at a port that rank 0 found free.

    A TCP store looks up the name of 127.0.0.1; where that asks a DNS server, 32 ranks at once made it
    drop a question and all wait five seconds for its repetition.
    """
    tcp: Any = TCPStore
    file: Any = FileStore
    if host is not None:
        choose_interface(host)
    if host is None:
        store = file(path, size)
    elif rank == 0:
        store = tcp(host, 0, size, is_master=True, wait_for_workers=False)
        pipe.send((host, store.port))
    else:
        store = tcp(*pipe.recv(), size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_GLOO_TIMEOUT)
