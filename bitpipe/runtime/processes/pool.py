"""Rank processes on this machine: started fast, watched, and never left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from bitpipe.runtime.processes.failure import Death, RankFailure, Report, first_cause
from bitpipe.runtime.result import Cause

_POLL = 0.05  # seconds between looks at the board
_GRACE = 0.25  # seconds for the others' reports once one rank has failed
_BOARD = 3  # numbers per rank: job, iteration, mark
_IDLE = -2
_GONE = 5.0  # seconds for a killed process to go; one that waits for a dead file server does not
_FILES, _FILES_PER_RANK = 64, 8  # open files of this process, and of a rank for each of the others
# Of the 108 bytes of a socket's name, after "/pymp-xxxxxxxx/listener-xxxxxxxx" and the final zero.
_LONGEST_FOLDER = 108 - 32 - 1

Describe = Callable[[int, int, int, int], str]
"""(rank, job, iteration, mark) → what that rank was doing."""


def _plain(rank: int, job: int, iteration: int, mark: int) -> str:
    return f"rank {rank}"


def check_temporary_folder() -> None:
    """Ranks are started through a socket below the folder for temporary files.

    Raises:
        InputError: that folder's name is too long for a socket's.
    """
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        raise InputError("TMPDIR", folder, f"at most {_LONGEST_FOLDER} bytes: sockets lie below it")


def check_open_files(ranks: int) -> None:
    """Ranks are connected pairwise, and all of them to this process; raises the soft limit if it has to.

    Raises:
        InputError: the hard limit allows fewer files than that takes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_PER_RANK * ranks
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise InputError("ulimit -n", hard, f"{ranks} ranks need {needed} open files", "raise the limit")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Pool:
    """P ranks in one gloo world. They start on the first call and again after a failure.

    Processes are forked from a server that has imported torch (forkserver): 32 ranks start in
    two or three seconds. They die with this process, whatever ends it.

    Attributes:
        ranks: P.
        watchdog: seconds without progress after which a task counts as hung.
    """

    def __init__(self, ranks: int, *, watchdog: float = 60.0, start_limit: float = 120.0) -> None:
        self.ranks = ranks
        self.watchdog = watchdog
        self._start_limit = start_limit
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._board: Any = None
        self._meeting: Path | None = None
        self.generation = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the ranks, unless they are up.

        Raises:
            InputError: see :func:`check_temporary_folder` and :func:`check_open_files`.
            RankFailure: they do not come up.
        """
        if self._processes:
            return
        check_temporary_folder()
        check_open_files(self.ranks)
        self._meeting = Path(tempfile.mkdtemp(prefix="bitpipe-ranks-"))
        store = str(self._meeting / "store")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["bitpipe.runtime.processes.rank_process"])
        self._board = context.RawArray("q", _BOARD * self.ranks)
        self.generation += 1
        try:
            with _bare_main(), _without_interrupts():
                for rank in range(self.ranks):
                    here, there = context.Pipe()
                    process = context.Process(
                        target=_enter, args=(rank, self.ranks, there, self._board, store), daemon=True
                    )
                    process.start()
                    there.close()
                    self._processes.append(process)
                    self._pipes.append(here)
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def _settle_world(self) -> None:
        """Across machines: rank 0 opens a store on a free port; the others are told which."""
        first = self._collect(lambda found: 0 in found, self._start_limit, self._start_limit, _plain)
        for pipe in self._pipes[1:]:
            pipe.send(first[0])
        self._await_ready()

    def _await_ready(self) -> None:
        self._collect(lambda found: len(found) == self.ranks, self._start_limit, self._start_limit, _plain)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        limit: float | None = None,
        describe: Describe = _plain,
    ) -> Any:
        """Run ``function(world, *arguments)`` on every rank; returns what rank 0 returned.

        Args:
            function: importable by name; gets a :class:`bitpipe.runtime.processes.world.World`.
            limit: seconds for all of it.
            describe: how to say where a rank was.

        Raises:
            RankFailure: a rank raised, died, hung, or the limit passed. All ranks are gone then.
        """
        if multiprocessing.connection.wait([process.sentinel for process in self._processes], timeout=0):
            self.close()  # a rank died since the last call, which is nobody's failure
        self.start()
        self._board[:] = [0, -1, _IDLE] * self.ranks  # nothing of an earlier call's jobs
        task = bytes(ForkingPickler.dumps((function, arguments)))
        # Sent beside the watching: a rank that is stopped does not read, and a pipe holds little.
        senders = [threading.Thread(target=_send, args=(pipe, task), daemon=True) for pipe in self._pipes]
        try:
            for sender in senders:
                sender.start()
            return self._collect(lambda found: len(found) == self.ranks, limit, self.watchdog, describe)[0]
        except BaseException:
            self._kill()
            for sender in senders:
                sender.join(_GONE)
            self.close()
            raise

    def close(self) -> None:
        """Stop every rank at once."""
        self._kill()
        end = time.monotonic() + _GONE
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
            with contextlib.suppress(ValueError):  # it has not gone; the kernel ends it when it can
                process.close()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []
        if self._meeting is not None:
            shutil.rmtree(self._meeting, ignore_errors=True)
            self._meeting = None

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def _collect(
        self,
        enough: Callable[[dict[int, Any]], bool],
        limit: float | None,
        watchdog: float,
        describe: Describe,
    ) -> dict[int, Any]:
        """Wait for answers, watching for deaths, silence and the time limit."""
        begun = time.monotonic()
        answers: dict[int, Any] = {}
        reports: list[Report] = []
        deaths: list[Death] = []
        watch = _Watch(self._board, self.ranks, watchdog)
        failed_at: float | None = None
        pipes = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        sentinels = {process.sentinel: rank for rank, process in enumerate(self._processes)}
        while not (enough(answers) and failed_at is None):
            now = time.monotonic()
            if failed_at is not None and (now - failed_at > _GRACE or not sentinels):
                self._raise(reports, deaths, describe)
            if failed_at is None and limit is not None and now - begun > limit:
                self._stop("timeout", f"not done after {limit:g} s", describe, watch)
            if failed_at is None and (silent := watch.silent(set(answers))):
                self._stop("watchdog", silent, describe, watch)
            for ready in multiprocessing.connection.wait([*pipes, *sentinels], timeout=_POLL):
                if ready in pipes:
                    assert isinstance(ready, Connection)
                    rank = pipes[ready]
                    try:
                        answer = ready.recv()
                    except (EOFError, OSError):
                        del pipes[ready]
                        continue
                    if isinstance(answer, Report):
                        reports.append(answer)
                        failed_at = failed_at or time.monotonic()
                    else:
                        answers[rank] = answer
                elif ready in sentinels:
                    rank = sentinels.pop(ready)
                    self._processes[rank].join()
                    deaths.append(Death(rank=rank, code=self._processes[rank].exitcode or 0, time=now))
                    failed_at = failed_at or time.monotonic()
        return answers

    def _raise(self, reports: list[Report], deaths: list[Death], describe: Describe) -> None:
        spoken = {report.rank for report in reports}
        silent = [death for death in deaths if death.rank not in spoken]
        where = [self._where(rank, describe) for rank in range(self.ranks)]
        status, cause = first_cause(reports, silent, where)
        raise RankFailure(status, cause, self._board[_BOARD * (cause.rank or 0)])

    def _stop(self, kind: str, message: str, describe: Describe, watch: _Watch) -> None:
        pids = [process.pid or 0 for process in self._processes]
        culprits = watch.culprits(pids)
        rank = culprits[0][0] if culprits else None
        found = "; ".join(f"{self._where(r, describe)}: {why}" for r, why in culprits[:4])
        text = f"{message}; {found or 'all ranks wait for each other'}"
        job = self._board[_BOARD * (rank or 0)]
        raise RankFailure("timeout", Cause(kind=kind, message=text, rank=rank, time=time.monotonic()), job)

    def _where(self, rank: int, describe: Describe) -> str:
        job, iteration, mark = self._board[_BOARD * rank : _BOARD * rank + _BOARD]
        return describe(rank, job, iteration, mark)


class _Watch:
    """Notices when ranks stop moving, from the board alone."""

    def __init__(self, board: Any, ranks: int, patience: float) -> None:
        self._board = board
        self._ranks = ranks
        self._patience = patience
        self._seen: list[Sequence[int]] = [()] * ranks
        self._since = [time.monotonic()] * ranks

    def silent(self, done: set[int]) -> str:
        """One line if the task hangs: a rank stuck in its own work, or no rank moving at all."""
        now = time.monotonic()
        for rank in range(self._ranks):
            seen = self._board[_BOARD * rank : _BOARD * rank + _BOARD]
            if seen != self._seen[rank]:
                self._seen[rank], self._since[rank] = seen, now
        still = [now - self._since[rank] for rank in range(self._ranks)]
        stuck = any(
            still[rank] > self._patience and not self._waits(rank)
            for rank in range(self._ranks)
            if rank not in done
        )
        if stuck or min(still) > self._patience:
            return f"no progress for {max(still):.1f} s"
        return ""

    def culprits(self, pids: Sequence[int]) -> list[tuple[int, str]]:
        """Ranks that do not wait for others, or whose process is stopped; longest silence first."""
        found = []
        for rank in range(self._ranks):
            if _state(pids[rank]) == "T":
                found.append((0, self._since[rank], rank, "its process is stopped"))
            elif not self._waits(rank) and self._board[_BOARD * rank + 2] != _IDLE:
                found.append((1, self._since[rank], rank, "not waiting for communication"))
        return [(rank, why) for _, _, rank, why in sorted(found)]

    def _waits(self, rank: int) -> bool:
        return bool(self._board[_BOARD * rank + 2] & 1)


def _state(pid: int) -> str:
    """The kernel's letter for a process's state, empty if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _send(pipe: Connection, task: bytes) -> None:
    with contextlib.suppress(OSError):  # the rank has gone, which its sentinel says
        pipe.send_bytes(task)


def _enter(rank: int, size: int, pipe: Connection, board: Any, store: str) -> None:
    from bitpipe.runtime.processes.rank_process import serve

    serve(rank, size, pipe, board, store)


@contextlib.contextmanager
def _bare_main() -> Iterator[None]:
    """Hide ``__main__``, so that ranks do not import the caller's script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes with Ctrl-C blocked: a fork server that still imports would print a traceback."""
    multiprocessing.resource_tracker.ensure_running()  # it unblocks the signal once it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
