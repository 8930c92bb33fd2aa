"""A pool whose ranks are the tasks of a Slurm step, started by srun on the job's nodes.

The process that holds the pool runs in the job's batch step. Its ranks connect back to it by TCP
with a key that only this job knows; from then on they are served like processes of this machine:
the same calls, the same watching for deaths, silence and time, the same first cause.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bitpipe.errors import InputError
from bitpipe.runtime.processes.failure import Death, RankFailure, Report
from bitpipe.runtime.processes.pool import Describe
from bitpipe.runtime.result import Cause
from experiments.records.record import Cause as RecordCause
from experiments.running.ranks import ReportingPool
from slurm import client, jobs, plan, step_words
from slurm.step import NotStarted, RemoteTask, Step
from slurm.verdict import signal_name

_ENTRIES = 3  # of the board, per rank
_START_AGAIN_S = 600.0  # for so long a step is started again where only the controller was away
_SLURMD_TIMEOUT = 300  # Slurm's default: seconds after which a silent node counts as dead


class NodeLost(BaseException):
    """A node of the job is dead: no cell is to blame, and Slurm will take the job away.

    Attributes:
        cause: names the node, and a rank on it.
    """

    def __init__(self, nodes: str, rank: int | None) -> None:
        self.cause = RecordCause(kind="node", message=f"node {nodes} failed", rank=rank)
        super().__init__(self.cause.message)


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
        self._read: dict[Path, int] = {}  # of the ranks' files, by earlier steps
        self._idle = False
        self.versions: dict[str, str] = {}  # of the ranks' libraries, once they have been up

    def start(self) -> None:
        """Start the step, unless it is up; again where only the controller does not answer.

        Raises:
            RankFailure: its tasks do not come up.
            NodeLost: because a node is dead.
        """
        if self._step is not None:
            return
        end, pause = time.monotonic() + _START_AGAIN_S, client.FIRST_PAUSE_S
        while True:
            try:
                self._start()
                return
            except NotStarted as error:
                said, failure = self._step_said(), self._not_started(error)
                self.close()
                if not any(client.is_silence(line) for line in said) or time.monotonic() > end:
                    raise failure from error
            except BaseException:
                self.close()
                raise
            print(f"{failure.cause.message}; starting again", flush=True)
            time.sleep(pause)
            pause = min(2 * pause, client.LONGEST_PAUSE_S)

    def _start(self) -> None:
        self.generation += 1
        for rank in range(self.ranks):
            (self._folder / f"rank{rank}").mkdir(parents=True, exist_ok=True)
        where = str(self._folder / "rank%t")
        self._read = {file: file.stat().st_size for file in self._folder.glob("rank*/err.txt")}
        command = self._command(f"{where}/out.txt", f"{where}/err.txt")
        self._board = multiprocessing.RawArray("q", _ENTRIES * self.ranks)
        log = self._folder / f"step{self.generation}.txt"
        self._step = Step(command, self.ranks, log, os.environ)
        self._step.gather(self._start_limit)
        self._pipes = [self._step.pipes[rank] for rank in range(self.ranks)]
        self._processes = self._watched(self._step)  # type: ignore[assignment]
        self._settle_world()
        self._idle = True
        self.versions = self._step.versions[0]

    def _not_started(self, error: NotStarted) -> RankFailure:
        """Whom to blame: the task that a signal hit takes its cell along only, else no cell can run.

        Raises:
            NodeLost: a node is dead.
        """
        said, words = self._step_said(), self._words()
        if node := step_words.node_failure(said) or ", ".join(jobs.failed_nodes(_job_nodes())):
            raise NodeLost(node, error.missing[0])
        if line := step_words.memory([*said, *words], self._step.name if self._step else ""):
            cause = Cause(kind="memory", message=f"{error}: {line}", rank=error.missing[0])
            return RankFailure("failed", cause, 0)
        if found := step_words.struck(said):
            name = signal_name(found[1])
            message = f"rank {found[0]}: killed by {name} while it started"
            return RankFailure("failed", Cause(kind="signal", message=message, rank=found[0], signal=name), 0)
        message = f"{error}: {step_words.reason(said, words)}"
        return RankFailure("failed", Cause(kind="slurm", message=message, rank=error.missing[0]), -1)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """As :meth:`bitpipe.runtime.processes.pool.Pool.call`.

        Raises:
            RankFailure: see there.
            NodeLost: a node is dead.
        """
        self._idle = False
        value = super().call(function, *arguments, **options)
        self._idle = True
        return value

    def close(self) -> None:
        """Stop every rank: at once, unless they only wait for work."""
        if self._step is not None and self._idle:
            self._step.leave()
        self._idle = False
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
        step = self._step
        spoken = {report.rank for report in reports}
        silent = [d.rank for d in deaths if d.rank not in spoken and step.exit_of(d.rank) is None]
        if silent and (node := self._dead_node(step, silent)):
            raise NodeLost(node, silent[0])
        reports = [replace(report, time=report.time + step.ahead[report.rank]) for report in reports]
        deaths = [replace(death, code=step.exit_of(death.rank) or death.code) for death in deaths]
        try:
            super()._raise(reports, deaths, describe)
        except RankFailure as failure:
            line = step_words.memory([*step.said(), *self._words()], step.name)
            if not line or failure.cause.signal != "SIGKILL":
                raise
            message = f"{failure.cause.message}: the host's memory: {line}"
            cause = Cause(kind="memory", message=message, rank=failure.cause.rank)
            raise RankFailure("failed", cause, failure.job) from failure

    def _stop(self, *arguments: Any) -> None:
        """Ranks are silent: because a node is dead, if Slurm says so.

        Raises:
            RankFailure: else.
            NodeLost: a node is dead.
        """
        if nodes := jobs.failed_nodes(_job_nodes()):
            raise NodeLost(", ".join(nodes), None)
        super()._stop(*arguments)

    def _dead_node(self, step: Step, silent: list[int]) -> str:
        """The nodes of ranks that went without a word from anybody, if they are dead.

        Slurm needs a while to know that; until it does, nothing is known.
        """
        nodes = ",".join(sorted({step.nodes[rank] for rank in silent}))
        end = time.monotonic() + _slurmd_timeout() + 30
        while time.monotonic() < end:
            if found := step_words.node_failure(step.said()) or ", ".join(jobs.failed_nodes(nodes)):
                return found
            if any(step_words.exit_code(step.said(), rank) is not None for rank in silent):
                return ""
            time.sleep(1)
        return ""

    def _step_said(self) -> list[str]:
        return self._step.said() if self._step is not None else []

    def _words(self) -> list[str]:
        """What the step daemons, and tasks that did not start, said in the ranks' files during this step."""
        lines = []
        for file in sorted(self._folder.glob("rank*/err.txt")):
            text, before = file.read_bytes(), self._read.get(file, 0)
            new = text[before:] if len(text) >= before else text  # srun may have begun the file anew
            lines += new.decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()]


def _job_nodes() -> str:
    return os.environ.get("SLURM_JOB_NODELIST", "")


def _slurmd_timeout() -> int:
    try:
        said = client.configuration().get("SlurmdTimeout", "")
    except InputError:
        said = ""
    found = re.match(r"\d+", said)
    return min(int(found[0]) if found else _SLURMD_TIMEOUT, 2 * _SLURMD_TIMEOUT)


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
