"""What srun and the step daemons say about a step, read from their files. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence

MEMORY = re.compile(
    r"oom[-_ ]?kill|out of memory|exceeded (?:job |step )?memory limit|memory limit exceeded|MemoryError",
    re.IGNORECASE,
)
_ENDED = re.compile(r"error: \S+: tasks? ([\d,-]+): (.+)")
_NAMES = {
    "Killed": signal.SIGKILL,
    "Out Of Memory": signal.SIGKILL,
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


def exit_code(lines: Iterable[str], rank: int) -> int | None:
    """How srun says that a task ended: minus a signal's number, an exit status, None if it does not."""
    for line in lines:
        found = _ENDED.search(line)
        if not found or rank not in numbers(found[1]):
            continue
        status = re.search(r"Exited with exit code (\d+)", found[2])
        if status:
            return int(status[1])
        for name, number in _NAMES.items():
            if found[2].startswith(name):
                return -number
        return 1
    return None


def struck(lines: Iterable[str]) -> tuple[int, int] | None:
    """(rank, signal) if the first task that ended did so by a signal; srun then kills the others."""
    first = next((found for line in lines if (found := _ENDED.search(line))), None)
    if first is None:
        return None
    for name, number in _NAMES.items():
        if first[2].startswith(name) and number != signal.SIGTERM:
            return min(numbers(first[1])), number
    return None


def numbers(text: str) -> set[int]:
    """Slurm's ``0,2-3`` as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found |= set(range(int(first), int(last or first) + 1))
    return found


def node_failure(lines: Iterable[str]) -> str:
    """The nodes whose failure srun reports, empty if none."""
    for line in lines:
        if found := re.search(r"Node failure on ([\w.,\[\]-]+)", line):
            return found[1]
    return ""


def memory(lines: Iterable[str], step: str) -> str:
    """The line that says that this step ran out of memory, empty if none does.

    Args:
        lines: of this step's files.
        step: ``job.step``; a line that names another step is not about this one.
    """
    for line in lines:
        named = re.search(r"\bStepId=([\w.+]+)|\bStep (\d[\w.+]*)", line)
        if MEMORY.search(line) and not (named and step and (named[1] or named[2]).rstrip(".,") != step):
            return line.strip()
    return ""


_HOLLOW = re.compile(
    r"Exited with exit code|Terminating|step aborted|Force Terminated|STEP \S+ ON|JOB \S+ ON|: Killed$|"
    r": Terminated$|launch failed|error: Application launch|^\s*$"
)


def reason(srun: Sequence[str], tasks: Sequence[str]) -> str:
    """Why a step's tasks did not start: what says most, the tasks' own files before srun's."""
    for lines in (tasks, srun):
        if any(line.startswith("Traceback") for line in lines):
            return lines[-1].strip()
        telling = [line.strip() for line in lines if not _HOLLOW.search(line)]
        wanted = [line for line in telling if "error" in line.lower()] or telling
        if wanted:
            return re.sub(r"^(slurmstepd|srun)[\w-]*: (fatal: )?(error: )?", "", wanted[0])
    return next((line.strip() for line in reversed([*tasks, *srun]) if line.strip()), "no output")


_TAKEN = re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED AT \S+?(?: DUE TO ([A-Z ]+[A-Z]).*)? ?\*\*\*")
_DUE = {
    "TIME LIMIT": "TIMEOUT",
    "PREEMPTION": "PREEMPTED",
    "NODE FAILURE": "NODE_FAIL",
    "JOB REQUEUE": "REQUEUED",
}


def taken(lines: Sequence[str]) -> str:
    """Why the step daemon ends the job, as a state of Slurm's, empty if it has not said so.

    A plain ``CANCELLED`` also stands before a preemption's or another's SIGTERM: no proof by itself.
    """
    for line in reversed(lines):
        if found := _TAKEN.search(line):
            return _DUE.get(found[1] or "", "") if found[1] else "CANCELLED"
    return ""
