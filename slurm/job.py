"""What a job does: it supervises its block from the batch step and starts ranks as steps.

The supervisor outlives its ranks. It writes every record, also when a rank dies or when Slurm takes
the job away (preemption, time limit, cancellation); what it cannot write, because its node died,
the next start of the job or :mod:`slurm.settle` writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from bitpipe.errors import InputError
from bitpipe.words import counted
from experiments.records.record import FINISHED, Cause, Record, Status
from experiments.records.store import Store
from experiments.running.block import Block
from experiments.running.execute import run_block
from slurm import client, jobs, plan, preflight, step_words
from slurm.folder import SweepFolder
from slurm.jobs import JobState, seconds_of
from slurm.journal import Journal
from slurm.settle import BY_NODES, close
from slurm.site import Site
from slurm.verdict import verdict

if TYPE_CHECKING:
    from slurm.pool import SlurmPool

BEFORE_LIMIT_S = 8.0
"""So long before the time limit the supervisor writes down that it was reached."""


PATIENCE_S = 60.0
"""How long a job that starts asks a controller that does not answer."""

ASK_S = 4.0
"""How long a signal's reason is looked for; SIGKILL may follow some seconds after SIGTERM."""


class TakenAway(BaseException):
    """Slurm ends this job. Its open attempts have their records, unless nobody said why: then the job's
    next start or :mod:`slurm.settle` ends them.

    Attributes:
        reason: the state of Slurm's that this amounts to, empty if that is not known.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def canary_of(block: Block) -> Block:
    """A block that only shows that the shape works: its first cell, two iterations long."""
    cell = block.cells[0]
    iterations = min(2, cell.job.iterations)
    short = replace(cell, job=replace(cell.job, iterations=iterations, measured=1))
    return replace(block, cells=(short,), settings=replace(block.settings, repeats=1))


@dataclass(frozen=True, kw_only=True)
class Call:
    """The submitted callable.

    Attributes:
        block: what to run.
        folder: of the sweep.
        request: this job's resources.
        site: the cluster's settings.
        preflight: look at the allocation first.
    """

    block: Block
    folder: Path
    request: plan.Request
    site: Site
    preflight: bool = False

    def __call__(self) -> None:
        import submitit

        Supervisor(self, submitit.JobEnvironment().job_id).run()

    def step(self, output: str, error: str) -> list[str]:
        """The srun command line of the job's ranks, up to the module to run."""
        settings = self.block.settings
        needed = [settings.results, settings.data_cache, *filter(None, [settings.data_path])]
        return plan.step_command(
            self.site,
            self.request,
            sys.executable,
            output=output,
            error=error,
            code=SweepFolder(self.folder).code,
            visible=[path for path in needed if path.exists()],
        )


class Supervisor:
    """Runs one job's block and keeps its journal."""

    def __init__(self, call: Call, id: str) -> None:
        self.call, self.id = call, id
        self.folder = SweepFolder(call.folder).job(id)
        self.journal = Journal(self.folder)
        self.store = Store(call.block.settings.results)
        self.facts: dict[str, Any] = {}
        self.pool: SlurmPool | None = None
        self._log_at_start = 0

    def run(self) -> None:
        """Run what is left of the block.

        Raises:
            RuntimeError: a cell failed, or the job was taken away; Slurm shall see that.
        """
        with client.patient(PATIENCE_S, _say):
            self._resume()
        restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        nodes = os.environ.get("SLURM_JOB_NODELIST", "")
        self._log_at_start = _size(self._log)
        self.journal.write("start", restart=restart, nodes=nodes)
        self.facts = {"job": self.id, "nodes": nodes, "restart": restart, "request": str(self.call.request)}
        if self.call.site.container != "none":
            self.facts["container"] = f"{self.call.site.container}: {self.call.site.image}"
        self._watch_signals()
        block = self._left()
        try:
            if block is not None and self._preflight(block):
                self._run(block)
        except TakenAway as end:
            self._leave(end.reason)
        self._finish()

    def _run(self, block: Block) -> None:
        if block.backend == "simulate":
            run_block(block, self._ended)
            return
        from slurm.pool import NodeLost, SlurmPool

        self.pool = pool = SlurmPool(self.call.request, self.call.step, self.folder)
        try:
            run_block(block, self._ended, pool=pool, begun=self._begun)
        except NodeLost as lost:
            self._ignore_signals()
            self._close_all(Status.FAILED, lost.cause)
            raise TakenAway("NODE_FAIL") from lost
        finally:
            self._ignore_signals()
            pool.close()

    # ---- attempts

    def _resume(self) -> None:
        """End what an earlier start of this job left open when its node died."""
        left = self.journal.open()
        if not left:
            return
        state = jobs.earlier(self.id) or JobState(id=self.id, state="REQUEUED")
        self._close_open(replace(state, nodes=state.nodes or self.journal.nodes()))

    def _left(self) -> Block | None:
        done = self.journal.ended()
        taken = self.journal.taken()
        cells = tuple(cell for cell in self.call.block.cells if cell.id not in done or cell.id in taken)
        return replace(self.call.block, cells=cells) if cells else None

    def _begun(self, record: Record) -> None:
        self.journal.write("begin", cell=record.cell, attempt=record.attempt)

    def _ended(self, record: Record, name: str) -> None:
        """A record was written; add where it ran."""
        self.store.write(self._with_facts(record))
        self.journal.write("end", cell=record.cell, attempt=record.attempt, status=str(record.status))
        why = f": {record.cause.message}" if record.cause else ""
        print(f"{record.status} {record.cell} a{record.attempt} {name}{why}", flush=True)

    def _with_facts(self, record: Record) -> Record:
        """Where it ran, and the libraries that ran it: those of the ranks, which a container may have."""
        ran = {"versions": self.pool.versions} if self.pool and self.pool.versions else {}
        return replace(record, provenance={**record.provenance, **ran, "slurm": self.facts})

    def _close_all(self, status: Status, cause: Cause) -> None:
        cells = {cell.id: cell for cell in self.call.block.cells}
        for id, attempt in self.journal.open().items():
            close(self.journal, self.call.block, cells[id], attempt, status, cause)

    def _close_open(self, state: JobState, minutes: int | None = None) -> None:
        """End the open attempts as Slurm ended the job."""
        failed = ", ".join(jobs.failed_nodes(state.nodes)) if state.state in BY_NODES else ""
        self._close_all(*verdict(state, minutes or self.call.request.minutes, failed=failed))

    def _finish(self) -> None:
        """Say that nothing more will come.

        Raises:
            RuntimeError: a cell failed.
        """
        self.journal.write("finish", by="job")
        ended = self.journal.ended()
        failed = [cell.id for cell in self.call.block.cells if ended.get(cell.id) not in set(FINISHED)]
        if failed:
            cells = counted(len(self.call.block.cells), "cell")
            raise RuntimeError(f"{len(failed)} of {cells} failed: {failed}")

    # ---- preflight

    def _preflight(self, block: Block) -> bool:
        """Whether the allocation may be used; if not, every cell's record names the bad node."""
        if not self.call.preflight:
            return True
        found = self._looked_at(block.backend)
        self.facts["preflight"] = found
        self.journal.write("preflight", problems=found["problems"])
        if not found["problems"]:
            return True
        cause = Cause(kind="preflight", message="; ".join(found["problems"]))
        for cell in block.cells:
            attempt = self.store.claim(cell.id)
            self.journal.write("begin", cell=cell.id, attempt=attempt)
            record = close(
                self.journal, block, cell, attempt, Status.FAILED, cause, taken=False, slurm=self.facts
            )
            print(f"{record.status} {cell.id}: {cause.message}", flush=True)
        return False

    def _looked_at(self, backend: str) -> dict[str, Any]:
        """What the preflight step found; asked again where only the controller was away."""
        log = str(self.folder / "preflight-rank%t.txt")
        result = self.folder / preflight.FILE
        command = [*self.call.step(log, log), "-m", "slurm.preflight", str(self.folder), backend]
        end = time.monotonic() + PREFLIGHT_S
        while True:
            result.unlink(missing_ok=True)
            try:
                done = subprocess.run(
                    command, timeout=PREFLIGHT_S, check=False, capture_output=True, text=True
                )
                said = (done.stderr or done.stdout).splitlines()
            except subprocess.TimeoutExpired:
                said = [f"no answer within {PREFLIGHT_S:.0f} s"]
            if result.exists():
                found: dict[str, Any] = json.loads(result.read_text())
                return found
            if not client.is_silence(" ".join(said) or "?") or time.monotonic() > end:
                break
            time.sleep(client.LONGEST_PAUSE_S)
        files = sorted(self.folder.glob("preflight-rank*.txt"))
        tasks = [line for file in files for line in file.read_text(errors="replace").splitlines()]
        why = step_words.reason(said, tasks)
        return {"ranks": [], "links": {}, "problems": [f"the ranks did not meet: {why}"]}

    # ---- signals

    def _watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM):
            signal.signal(number, self._signalled)
        # SIGCONT comes with every SIGTERM of Slurm's; submitit's handler would only log it.
        signal.signal(signal.SIGCONT, signal.SIG_IGN)
        try:
            with client.patient(PATIENCE_S, _say):
                self._arm(jobs.details(self.id))
        except InputError:  # when it rings, Slurm is asked again
            signal.setitimer(signal.ITIMER_REAL, max(1.0, 60 * self.call.request.minutes - BEFORE_LIMIT_S))

    def _arm(self, details: Mapping[str, str]) -> None:
        """Wake up shortly before the time limit as it is now."""
        left = seconds_left(details)
        signal.setitimer(signal.ITIMER_REAL, 0.0 if left is None else max(1.0, left - BEFORE_LIMIT_S))

    def _ignore_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Find out what Slurm wants, write it down, and leave.

        Raises:
            TakenAway: unless it was only a reminder of the time limit.
        """
        details, reason = self._asked(number)
        self.journal.write("interrupted", signal=signal.Signals(number).name, reason=reason)
        if reason == REMINDER:
            if details:
                self._arm(details)
            else:
                signal.setitimer(signal.ITIMER_REAL, 2.0)
            return
        self._ignore_signals()
        if reason:
            # The limit may have been changed since the job was submitted.
            minutes = client.minutes_of(details.get("TimeLimit", ""))
            self._close_open(JobState(id=self.id, state=reason, nodes=self.facts["nodes"]), minutes)
        raise TakenAway(reason)

    def _asked(self, number: int) -> tuple[dict[str, str], str]:
        """The job's details, and why it got the signal, as far as anybody says so in time."""
        end = time.monotonic() + ASK_S
        details: dict[str, str] = {}
        while True:
            with contextlib.suppress(client.NoAnswer):
                details = jobs.details(self.id, timeout=ASK_S)
            reason = why(number, details, step_words.taken(self._words()))
            if reason or time.monotonic() > end:
                return details, reason
            time.sleep(0.5)

    @property
    def _log(self) -> Path:
        """Where Slurm's own words about this job go."""
        return self.folder.parent / f"{self.id}_0_log.err"

    def _words(self) -> list[str]:
        """What was said since this start of the job."""
        try:
            return self._log.read_bytes()[self._log_at_start :].decode(errors="replace").splitlines()
        except OSError:
            return []

    def _leave(self, reason: str) -> NoReturn:
        """Wait for Slurm to act: a job that exits by itself would not be requeued.

        Raises:
            RuntimeError: Slurm has not taken the job away after all.
        """
        if reason != "CANCELLED":
            print(f"{reason or 'a signal'}: waiting for Slurm to take the job away", flush=True)
            time.sleep(_LEAVE_S.get(reason, BEFORE_LIMIT_S + 30))
        if reason in _LEAVE_S:
            with contextlib.suppress(InputError):
                client.call("scontrol", "requeue", self.id, again=False)
            time.sleep(30)
        raise RuntimeError(f"taken away by Slurm: {reason or 'it does not say why'}")


_LEAVE_S = {"PREEMPTED": 60.0, "REQUEUED": 60.0, "NODE_FAIL": 90.0}
"""Ends after which the job starts again, and how long Slurm gets to see to that."""

PREFLIGHT_S = 600.0
REMINDER = "reminder"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def why(number: int, details: Mapping[str, str], said: str = "") -> str:
    """The Slurm state that a signal announces, ``reminder``, or nothing if that is not known. Pure.

    Args:
        number: the signal; SIGALRM is the supervisor's own watch on the time limit.
        details: of the job, from scontrol, taken just now; empty if it did not answer.
        said: what the step daemon wrote into the job's log, see :func:`slurm.step_words.taken`.
    """
    left = seconds_left(details)
    if number == signal.SIGALRM:  # a watch that was set before; the limit may have been moved since
        return "TIMEOUT" if left is not None and left <= BEFORE_LIMIT_S + 1 else REMINDER
    if details.get("PreemptTime", "None") not in ("None", "Unknown"):
        return "PREEMPTED"
    if said and said != "CANCELLED":
        return said
    state = details.get("JobState", "")
    if state in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"):
        return state
    if state in jobs.QUEUED:
        return "REQUEUED"
    if number == signal.SIGUSR2:
        return REMINDER
    if details and limit_passed(details):
        return "TIMEOUT"
    return "CANCELLED" if state == "COMPLETING" and said == "CANCELLED" else ""


def limit_passed(details: Mapping[str, str], now: float | None = None) -> bool:
    """The job has run for its time limit. EndTime does not tell: a cancelled job has one too."""
    minutes = client.minutes_of(details.get("TimeLimit", "UNLIMITED"))
    start = seconds_of(details.get("StartTime", "Unknown"))
    if minutes is None or start is None:
        return False
    return (time.time() if now is None else now) >= start + 60 * minutes - 1


def seconds_left(details: Mapping[str, str], now: float | None = None) -> float | None:
    """Until the job's time limit; None without one."""
    end = seconds_of(details.get("EndTime", "Unknown"))
    if end is None or details.get("TimeLimit") == "UNLIMITED":
        return None
    return end - (time.time() if now is None else now)
