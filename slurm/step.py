"""One srun, and the connections of its tasks to this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from bitpipe.errors import InputError
from slurm import client, step_words
from slurm.rendezvous import KEY

_LAST_WORDS = 2.0  # seconds that srun gets to say how a task ended
_GOODBYE = 10.0  # seconds that ranks get to leave by themselves


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
        code = self.step.exit_of(self.rank)
        return 1 if code is None else code

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
        self._before = log.stat().st_size if log.exists() else 0  # what an earlier start of the job said
        self._last_words: float | None = None
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
        self.nodes: dict[int, str] = {}
        self.ahead: dict[int, float] = {}  # time of day minus the rank's own clock
        self.versions: dict[int, dict[str, str]] = {}

    def gather(self, seconds: float) -> None:
        """Wait until every task has connected twice: to be called, and to show where it is.

        Raises:
            NotStarted: srun ended, or not all tasks came in time.
        """
        accepted = threading.Thread(target=self._accept, daemon=True)
        accepted.start()
        end = time.monotonic() + seconds
        while accepted.is_alive():
            accepted.join(0.1)
            if self.process.poll() is not None or time.monotonic() > end:
                missing = sorted(set(range(self.ranks)) - set(self.lines))
                over = "srun ended" if self.process.poll() is not None else f"not there after {seconds:.0f} s"
                raise NotStarted(missing, over)
        threading.Thread(target=self._hang_up, daemon=True).start()

    def _hang_up(self) -> None:
        """Without srun there are no tasks, whatever a dead machine's connections look like."""
        self.process.wait()
        time.sleep(_LAST_WORDS)  # those that still can have hung up themselves, in order
        self._shut(self.lines)

    def _accept(self) -> None:
        here = socket.gethostname()
        while len(self.pipes) < self.ranks or len(self.lines) < self.ranks:
            try:
                connection = self._listener.accept()
                _keep_alive(connection)
                rank, purpose, pid, host, node, self.name, ahead, versions = connection.recv()
            except (OSError, EOFError, multiprocessing.AuthenticationError):
                if self.process.poll() is not None:
                    return
                continue
            (self.pipes if purpose == "call" else self.lines)[rank] = connection
            self.pids[rank] = pid if host == here else 0
            self.nodes[rank] = node
            self.ahead[rank] = ahead
            self.versions[rank] = versions

    def said(self) -> list[str]:
        """srun's own lines."""
        text = self.log.read_bytes()[self._before :].decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()]

    def exit_of(self, rank: int) -> int | None:
        """How a task ended, from what srun says: minus a signal's number, or an exit status.

        None if it says nothing within a moment, which all tasks share.
        """
        self._last_words = self._last_words or time.monotonic() + _LAST_WORDS
        while True:
            code = step_words.exit_code(self.said(), rank)
            if code is not None or time.monotonic() > self._last_words:
                return code
            time.sleep(0.05)

    def leave(self) -> None:
        """Let idle tasks end by themselves, so that nothing in a good run's log looks like an accident."""
        self._shut(self.pipes)
        self._gone(_GOODBYE)

    def end(self) -> None:
        """Stop every task, whatever state it is in."""
        if self.process.poll() is not None:
            return
        self._shut(self.pipes)
        self._shut(self.lines)
        self.process.terminate()
        if self._gone(3.0):
            return
        if self.name:  # a stopped or stuck task takes only SIGKILL
            with contextlib.suppress(InputError):  # no controller: killing srun has to do
                client.call("scancel", "--signal=KILL", self.name, timeout=20)
        if not self._gone(10.0):
            self.process.kill()
            self.process.wait()

    def _shut(self, connections: Mapping[int, Connection]) -> None:
        for connection in connections.values():
            with contextlib.suppress(OSError):
                socket.socket(fileno=os.dup(connection.fileno())).shutdown(socket.SHUT_RDWR)

    def _gone(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def close(self) -> None:
        self.end()
        self._listener.close()
        for connection in (*self.pipes.values(), *self.lines.values()):
            connection.close()


class NotStarted(Exception):
    """Tasks of a step are missing.

    Attributes:
        missing: their ranks.
    """

    def __init__(self, missing: list[int], why: str) -> None:
        self.missing = missing
        super().__init__(f"ranks {missing} did not start: {why}")


def _keep_alive(connection: Connection) -> None:
    """Notice within half a minute that a machine is dead that could not close its connections."""
    with socket.socket(fileno=os.dup(connection.fileno())) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                one.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
