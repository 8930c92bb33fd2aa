"""What a job does: it supervises its block from the batch step and starts ranks as steps.

The supervisor outlives its ranks. It writes every record, also when a rank dies or when Slurm takes
the job away (preemption, time limit, cancellation); what it cannot write, because its node died,
the next start of the job or :mod:`slurm.settle` writes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from experiments.records.record import FINISHED, Cause, Record, Status
from experiments.records.store import Store
from experiments.running.block import Block
from experiments.running.execute import run_block
from slurm import client, plan, preflight
from slurm.folder import SweepFolder
from slurm.journal import Journal
from slurm.settle import close
from slurm.site import Site
from slurm.verdict import verdict

BEFORE_LIMIT_S = 8.0
"""So long before the time limit the supervisor writes down that it was reached."""


class TakenAway(BaseException):
    """Slurm ends this job; its open attempts have their records."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status)


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
        self.taken: Status | None = None

    def run(self) -> None:
        """Run what is left of the block.

        Raises:
            RuntimeError: a cell failed; Slurm shall see that.
        """
        self._resume()
        restart = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        nodes = os.environ.get("SLURM_JOB_NODELIST", "")
        self.journal.write("start", restart=restart, nodes=nodes)
        self.facts = {"job": self.id, "nodes": nodes, "restart": restart, "request": str(self.call.request)}
        self._watch_signals()
        block = self._left()
        try:
            if block is None or not self._preflight(block):
                self._finish()
                return
            self._run(block)
        except TakenAway as end:
            self._leave(end.status)
        self._finish()

    def _run(self, block: Block) -> None:
        if block.backend == "simulate":
            run_block(block, self._ended)
            return
        from slurm.pool import SlurmPool

        pool = SlurmPool(self.call.request, self.call.step, self.folder)
        try:
            run_block(block, self._ended, pool=pool, begun=self._begun)
        finally:
            self._ignore_signals()
            pool.close()

    # ---- attempts

    def _resume(self) -> None:
        """End what an earlier start of this job left open when its node died."""
        left = self.journal.open()
        if not left:
            return
        state = client.earlier(self.id) or client.JobState(id=self.id, state="REQUEUED")
        status, cause = verdict(state, self.call.request)
        self._close_all(status, cause)

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
        return replace(record, provenance={**record.provenance, "slurm": self.facts})

    def _close_all(self, status: Status, cause: Cause) -> None:
        cells = {cell.id: cell for cell in self.call.block.cells}
        for id, attempt in self.journal.open().items():
            close(self.journal, self.call.block, cells[id], attempt, status, cause)

    def _finish(self) -> None:
        """Say that nothing more will come.

        Raises:
            RuntimeError: a cell failed.
        """
        self.journal.write("finish", by="job")
        ended = self.journal.ended()
        failed = [cell.id for cell in self.call.block.cells if ended.get(cell.id) not in set(FINISHED)]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(self.call.block.cells)} cells failed: {failed}")

    # ---- preflight

    def _preflight(self, block: Block) -> bool:
        """Whether the allocation may be used; if not, every cell's record names the bad node."""
        if not self.call.preflight:
            return True
        log = str(self.folder / "preflight-rank%t.txt")
        command = self.call.step(log, log)
        result = self.folder / preflight.FILE
        result.unlink(missing_ok=True)
        command += ["-m", "slurm.preflight", str(self.folder), block.backend]
        done = subprocess.run(command, timeout=600, check=False, capture_output=True, text=True)
        if result.exists():
            found = json.loads(result.read_text())
        else:
            why = client.first_error(done.stderr or "no result")
            found = {"ranks": [], "links": {}, "problems": [f"the ranks did not meet: {why}"]}
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

    # ---- signals

    def _watch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM):
            signal.signal(number, self._signalled)
        # SIGCONT comes with every SIGTERM of Slurm's; submitit's handler would only log it.
        signal.signal(signal.SIGCONT, signal.SIG_IGN)
        left = seconds_left(client.details(self.id))
        if left is not None:
            signal.setitimer(signal.ITIMER_REAL, max(1.0, left - BEFORE_LIMIT_S))

    def _ignore_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Find out what Slurm wants, write it down, and leave.

        Raises:
            TakenAway: unless it was only a reminder of the time limit.
        """
        name = signal.Signals(number).name
        details = client.details(self.id)
        reason = why(number, details)
        self.journal.write("interrupted", signal=name, reason=reason)
        if reason == "reminder":
            return
        self._ignore_signals()
        state = client.JobState(id=self.id, state=reason, nodes=self.facts["nodes"])
        # The limit may have been changed since the job was submitted.
        minutes = client.minutes_of(details.get("TimeLimit", "")) or self.call.request.minutes
        status, cause = verdict(state, replace(self.call.request, minutes=minutes))
        self._close_all(status, cause)
        raise TakenAway(status)

    def _leave(self, status: Status) -> None:
        """Wait for Slurm to act: a job that exits by itself would not be requeued."""
        if status is Status.CANCELLED:
            return
        print(f"{status}: waiting for Slurm to take the job away", flush=True)
        end = time.monotonic() + (60 if status is Status.PREEMPTED else BEFORE_LIMIT_S + 30)
        while time.monotonic() < end:
            time.sleep(0.5)
        if status is Status.PREEMPTED:
            client.call("scontrol", "requeue", self.id)
            time.sleep(30)


def why(number: int, details: dict[str, str]) -> str:
    """The Slurm state that a signal announces, or ``reminder``. Pure.

    Args:
        number: the signal; SIGALRM is the supervisor's own watch on the time limit.
        details: of the job, from scontrol, taken just now.
    """
    if number == signal.SIGALRM:
        return "TIMEOUT"
    if details.get("PreemptTime", "None") not in ("None", "Unknown"):
        return "PREEMPTED"
    state = details.get("JobState", "")
    if state in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"):
        return state
    if number == signal.SIGUSR2:
        return "reminder"
    return "TIMEOUT" if limit_passed(details) else "CANCELLED"


def limit_passed(details: dict[str, str], now: float | None = None) -> bool:
    """The job has run for its time limit. EndTime does not tell: a cancelled job has one too."""
    minutes = client.minutes_of(details.get("TimeLimit", "UNLIMITED"))
    start = _seconds(details.get("StartTime", "Unknown"))
    if minutes is None or start is None:
        return False
    return (time.time() if now is None else now) >= start + 60 * minutes - 1


def seconds_left(details: dict[str, str], now: float | None = None) -> float | None:
    """Until the job's time limit; None without one."""
    end = _seconds(details.get("EndTime", "Unknown"))
    if end is None or details.get("TimeLimit") == "UNLIMITED":
        return None
    return end - (time.time() if now is None else now)


def _seconds(text: str) -> float | None:
    """A time of Slurm's as seconds since the epoch; None for Unknown."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
