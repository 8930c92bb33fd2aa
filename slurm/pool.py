"""A pool whose ranks are the tasks of a Slurm step, started by srun on the job's nodes.

The process that holds the pool runs in the job's batch step. Its ranks connect back to it by TCP
with a key that only this job knows; from then on they are served like processes of this machine:
the same calls, the same watching for deaths, silence and time, the same first cause.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import secrets
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from bitpipe.runtime.processes.failure import Death, RankFailure, Report
from bitpipe.runtime.processes.pool import Describe
from bitpipe.runtime.result import Cause
from experiments.running.ranks import ReportingPool
from slurm import client, plan
from slurm.rendezvous import KEY
from slurm.verdict import MEMORY

_ENTRIES = 3  # of the board, per rank
_LAST_WORDS = 2.0  # seconds that srun gets to say how a task ended


@dataclass
class RemoteTask:
    """One task of the step, as far as the pool needs a process: it can be watched and has an end.

    Attributes:
        rank: its number.
        pid: its process, 0 where it is another machine's.
        sentinel: becomes readable when the task has gone.
        step: the step that it belongs to.
    """

    rank: int
    pid: int
    sentinel: int
    step: Step

    def join(self, timeout: float | None = None) -> None:
        """Gone tasks are gone; waiting would be for srun's last words."""

    @property
    def exitcode(self) -> int:
        return self.step.exit_of(self.rank)

    def kill(self) -> None:
        self.step.end()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.sentinel)


class Step:
    """One srun and the connections of its tasks."""

    def __init__(self, command: list[str], ranks: int, log: Path, environment: Mapping[str, str]) -> None:
        self.ranks = ranks
        self.log = log
        self._listener = Listener(("0.0.0.0", 0), backlog=2 * ranks, authkey=(key := secrets.token_bytes(24)))
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        address = f"{host}:{self._listener.address[1]}"
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [*command, "-m", "slurm.rank", address],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**environment, KEY: key.hex()},
                start_new_session=True,
            )
        self.name = ""  # job.step, once a task has said it
        self.pipes: dict[int, Connection] = {}
        self.lines: dict[int, Connection] = {}
        self.pids: dict[int, int] = {}
        self.ahead: dict[int, float] = {}  # time of day minus the rank's own clock

    def gather(self, seconds: float) -> None:
        """Wait until every task has connected twice: to be called, and to show where it is.

        Raises:
            RankFailure: srun ended, or not all tasks came in time.
        """
        accepted = threading.Thread(target=self._accept, daemon=True)
        accepted.start()
        end = time.monotonic() + seconds
        while accepted.is_alive():
            accepted.join(0.1)
            if self.process.poll() is not None or time.monotonic() > end:
                missing = sorted(set(range(self.ranks)) - set(self.lines))
                why = "srun ended" if self.process.poll() is not None else f"not there after {seconds:.0f} s"
                last = self.said()[-1:] or ["no output"]
                cause = Cause(
                    kind="slurm", message=f"ranks {missing} did not start: {why}: {last[0]}", rank=missing[0]
                )
                raise RankFailure("oom" if MEMORY.search(last[0]) else "failed", cause, 0)

    def _accept(self) -> None:
        here = socket.gethostname()
        while len(self.pipes) < self.ranks or len(self.lines) < self.ranks:
            try:
                connection = self._listener.accept()
                rank, purpose, pid, host, self.name, ahead = connection.recv()
            except (OSError, EOFError, multiprocessing.AuthenticationError):
                if self.process.poll() is not None:
                    return
                continue
            (self.pipes if purpose == "call" else self.lines)[rank] = connection
            self.pids[rank] = pid if host == here else 0
            self.ahead[rank] = ahead

    def said(self) -> list[str]:
        """srun's own lines."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]

    def exit_of(self, rank: int) -> int:
        """How a task ended, from what srun says: minus a signal's number, or an exit status."""
        end = time.monotonic() + _LAST_WORDS
        while True:
            code = exit_code(self.said(), rank)
            if code is not None or time.monotonic() > end:
                return 1 if code is None else code
            time.sleep(0.05)

    def end(self) -> None:
        """Stop every task, whatever state it is in."""
        if self.process.poll() is not None:
            return
        for connection in (*self.pipes.values(), *self.lines.values()):
            with contextlib.suppress(OSError):
                socket.socket(fileno=os.dup(connection.fileno())).shutdown(socket.SHUT_RDWR)
        self.process.terminate()
        if self._gone(3.0):
            return
        if self.name:  # a stopped or stuck task takes only SIGKILL
            with contextlib.suppress(InputError):  # no controller: killing srun has to do
                client.call("scancel", "--signal=KILL", self.name, timeout=20)
        if not self._gone(10.0):
            self.process.kill()
            self.process.wait()

    def _gone(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def close(self) -> None:
        self.end()
        self._listener.close()
        for connection in (*self.pipes.values(), *self.lines.values()):
            connection.close()


class SlurmPool(ReportingPool):
    """P ranks, one per task of the job.

    Args:
        request: the job's resources.
        command: from the names of the files for output and errors to the srun command line.
        folder: of the job; rank k writes to ``rank<k>/``.
    """

    def __init__(self, request: plan.Request, command: Callable[[str, str], list[str]], folder: Path) -> None:
        super().__init__(request.nodes * request.tasks_per_node, start_limit=300.0)
        self._command, self._folder = command, folder
        self._step: Step | None = None

    def start(self) -> None:
        """Start the step, unless it is up.

        Raises:
            RankFailure: its tasks do not come up.
        """
        if self._step is not None:
            return
        self.generation += 1
        for rank in range(self.ranks):
            (self._folder / f"rank{rank}").mkdir(parents=True, exist_ok=True)
        where = str(self._folder / "rank%t")
        command = self._command(f"{where}/out.txt", f"{where}/err.txt")
        self._board = multiprocessing.RawArray("q", _ENTRIES * self.ranks)
        log = self._folder / f"step{self.generation}.txt"
        self._step = Step(command, self.ranks, log, os.environ)
        try:
            self._step.gather(self._start_limit)
            self._pipes = [self._step.pipes[rank] for rank in range(self.ranks)]
            self._processes = self._watched(self._step)  # type: ignore[assignment]
            self._settle_world()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop every rank at once."""
        super().close()
        if self._step is not None:
            self._step.close()
            self._step = None

    def _watched(self, step: Step) -> list[RemoteTask]:
        """Tasks with sentinels; a thread copies what they show onto the board."""
        tasks, ends = [], {}
        for rank in range(self.ranks):
            sentinel, ends[rank] = os.pipe()
            tasks.append(RemoteTask(rank=rank, pid=step.pids[rank], sentinel=sentinel, step=step))
        thread = threading.Thread(target=_show, args=(dict(step.lines), ends, self._board), daemon=True)
        thread.start()
        return tasks

    def _raise(self, reports: list[Report], deaths: list[Death], describe: Describe) -> None:
        """The pool's verdict, unless Slurm itself says that memory ran out.

        Raises:
            RankFailure: always.
        """
        assert self._step is not None
        ahead = self._step.ahead
        reports = [replace(report, time=report.time + ahead[report.rank]) for report in reports]
        said = next((line for line in self._words() if MEMORY.search(line)), None)
        try:
            super()._raise(reports, deaths, describe)
        except RankFailure as failure:
            if said is None or failure.status == "oom":
                raise
            cause = Cause(kind="memory", message=f"{failure.cause.message}: {said}", rank=failure.cause.rank)
            raise RankFailure("oom", cause, failure.job) from failure

    def _words(self) -> list[str]:
        """What srun and the step daemons said, in the step's and the ranks' files."""
        assert self._step is not None
        lines = self._step.said()
        for file in self._folder.glob("rank*/err.txt"):
            lines += [line for line in file.read_text(errors="replace").splitlines() if "slurmstepd" in line]
        return lines


def _show(lines: dict[int, Connection], ends: dict[int, int], board: Any) -> None:
    """Copy every task's position onto the board; close its end of the sentinel when it goes."""
    with selectors.DefaultSelector() as selector:
        for rank, line in lines.items():
            selector.register(line, selectors.EVENT_READ, rank)
        left = set(lines)
        while left:
            for key, _ in selector.select():
                rank = key.data
                try:
                    board[_ENTRIES * rank : _ENTRIES * rank + _ENTRIES] = lines[rank].recv()
                except (EOFError, OSError):
                    selector.unregister(key.fileobj)
                    left.discard(rank)
                    os.close(ends[rank])


_ENDED = re.compile(r"error: \S+: tasks? ([\d,-]+): (.+)")
_NAMES = {
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
    "User defined signal 1": signal.SIGUSR1,
    "User defined signal 2": signal.SIGUSR2,
    "Hangup": signal.SIGHUP,
    "Interrupt": signal.SIGINT,
}


def exit_code(lines: list[str], rank: int) -> int | None:
    """How srun says that a task ended: minus a signal's number, an exit status, None if it does not."""
    for line in lines:
        found = _ENDED.search(line)
        if not found or rank not in _numbers(found[1]):
            continue
        status = re.search(r"Exited with exit code (\d+)", found[2])
        if status:
            return int(status[1])
        for name, number in _NAMES.items():
            if found[2].startswith(name):
                return -number
        return 1
    return None


def _numbers(text: str) -> set[int]:
    """Slurm's ``0,2-3`` as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found
