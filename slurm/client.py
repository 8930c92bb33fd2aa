"""Slurm's client commands: always with a timeout, and an unusual answer becomes one clear line."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache

from bitpipe.errors import InputError
from slurm.environment import scrubbed

TIMEOUT_S = 30.0
LOCAL = "hydra/launcher=local runs here"


FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
DAEMON = {"sacct": "slurmdbd", "sacctmgr": "slurmdbd"}
"""Who answers a command, where it is not slurmctld."""


class NoAnswer(InputError):
    """There is no Slurm here, or none that answers just now."""


class NotInstalled(NoAnswer):
    """There is no such command here; asking again would not help."""


@dataclass
class Patience:
    """How long a question may be asked again, and who hears of it.

    Attributes:
        seconds: per question.
        say: told once per daemon that does not answer, until it does.
        silent: daemons that were spoken of.
    """

    seconds: float
    say: Callable[[str], None]
    silent: set[str] = field(default_factory=set)


_patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


@contextmanager
def patient(seconds: float, say: Callable[[str], None]) -> Iterator[None]:
    """Within it, every question that gets no answer is asked again, with back-off, for so long.

    Controllers and databases restart, and are busy, for a while; that ends no sweep.
    """
    token = _patience.set(Patience(seconds, say))
    try:
        yield
    finally:
        _patience.reset(token)


def call(*command: str, timeout: float = TIMEOUT_S, stdin: str | None = None, again: bool = True) -> str:
    """Standard output of a client command: the only place that starts one.

    Args:
        command: program and arguments.
        timeout: seconds for one try.
        stdin: its input.
        again: whether it may be asked twice within :func:`patient`. A submission never is: a job whose
            acknowledgement was lost is there all the same.

    Raises:
        NoAnswer: the command is not installed, or no daemon answers it.
        InputError: the command refuses.
    """
    patience = _patience.get()
    daemon = DAEMON.get(command[0], "slurmctld")
    end = time.monotonic() + (patience.seconds if patience else 0.0)
    pause = FIRST_PAUSE_S
    while True:
        try:
            answer = _once(command, timeout, stdin)
        except NotInstalled:
            raise
        except NoAnswer as error:
            if patience is None or not again or command[0] == "sbatch" or time.monotonic() + pause > end:
                raise
            if daemon not in patience.silent:
                patience.silent.add(daemon)
                patience.say(f"{daemon} does not answer ({error.value}: {error.allowed}); asking again")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        else:
            if patience is not None:
                patience.silent.discard(daemon)
            return answer


def _once(command: Sequence[str], timeout: float, stdin: str | None) -> str:
    if not shutil.which(command[0]):
        raise NotInstalled("slurm", f"{command[0]} not found", "no Slurm on this machine", LOCAL)
    up = f"is {DAEMON.get(command[0], 'slurmctld')} up?"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, input=stdin, env=scrubbed()
        )
    except subprocess.TimeoutExpired as error:
        problem = f"no answer within {timeout:.0f} s; {up}"
        raise NoAnswer("slurm", command[0], problem, f"try: scontrol ping; {LOCAL}") from error
    if done.returncode != 0:
        problem = first_error(done.stderr or done.stdout)
        if _NO_CONFIGURATION.search(problem):
            raise NoAnswer("slurm", command[0], problem, f"is SLURM_CONF set? {LOCAL}")
        # What a query is asked is fixed, so that only these words are about the question.
        if is_silence(problem) or (command[0] in ("squeue", "sacct") and not _FORGOTTEN.search(problem)):
            raise NoAnswer("slurm", command[0], problem, f"{up} {LOCAL}")
        raise InputError("slurm", command[0], problem)
    return done.stdout


_NO_CONFIGURATION = re.compile(
    r"slurm\.conf|config(uration)? (source|file|server)|fetch config", re.IGNORECASE
)
_FORGOTTEN = re.compile(r"invalid job id|invalid job/step id|no such job", re.IGNORECASE)
_SILENCE = re.compile(
    r"unable to (contact|establish)|connect|timed out|zero bytes|backup controller|standby|database|slurmdbd"
    r"|unexpected message|protocol|communication|temporarily|munge|authenticat|no reason given",
    re.IGNORECASE,
)


def is_silence(problem: str) -> bool:
    """Whether a complaint of Slurm's says that a daemon does not answer, and not that it refuses."""
    return bool(_SILENCE.search(problem))


def first_error(text: str) -> str:
    """The line of Slurm's complaint that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.search(r"Try \S+ --help|Try .* for more information", line)]
    wanted = [line for line in lines if "error:" in line] or lines or ["no reason given"]
    specific = [line for line in wanted if "Batch job submission failed" in line] or wanted
    return re.sub(r"^\w+: (fatal: )?error: ", "", specific[-1])


@dataclass(frozen=True, kw_only=True)
class Partition:
    """What one partition offers.

    Attributes:
        name: as ``--partition`` takes it.
        default: taken where none is asked for.
        nodes: nodes that it has.
        usable: those that are not down, drained or failing; a node that saves power counts.
        gpus_per_node: of the best node.
        minutes: longest job, None without a limit.
        gres: the GPUs as Slurm writes them, for instance ``gpu:a100:8``.
        cpus_per_node: of the best node.
    """

    name: str
    default: bool
    nodes: int
    gpus_per_node: int
    minutes: int | None
    gres: str = ""
    cpus_per_node: int = 0
    usable: int = 0


def partitions() -> dict[str, Partition]:
    """Every partition, from sinfo."""
    found: dict[str, Partition] = {}
    for line in call("sinfo", "-h", "-N", "-o", "%P|%T|%G|%l|%c").splitlines():
        name, state, gres, limit, cpus = line.split("|")
        usable = not re.match(r"down|drain|fail|maint|unknown|inval|future", state)
        old = found.get(name.rstrip("*"))
        best = max(gpus_in(gres), old.gpus_per_node if old else 0)
        found[name.rstrip("*")] = Partition(
            name=name.rstrip("*"),
            default=name.endswith("*"),
            nodes=(old.nodes if old else 0) + 1,
            usable=(old.usable if old else 0) + usable,
            gpus_per_node=best,
            minutes=minutes_of(limit),
            gres=gres if gpus_in(gres) else (old.gres if old else ""),
            cpus_per_node=max(int(cpus.rstrip("+")), old.cpus_per_node if old else 0),
        )
    return found


def gpus_in(gres: str) -> int:
    """GPUs in Slurm's notation: ``gpu:8``, ``gpu:a100:4(S:0-1)``, ``(null)``."""
    counts = re.findall(r"gpu(?::[\w.-]+)?:(\d+)(?=[,(]|$)", gres)
    return sum(int(count) for count in counts)


def minutes_of(limit: str) -> int | None:
    """Slurm's ``[days-]hours:minutes:seconds``, ``minutes:seconds`` or ``infinite``."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", limit):
        return None
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    if days:  # days-hours[:minutes[:seconds]]
        parts += [0] * (3 - len(parts))
    seconds = 0
    for part in parts if len(parts) > 1 else [*parts, 0]:
        seconds = seconds * 60 + part
    return int(days or 0) * 1440 + seconds // 60


@cache
def configuration() -> dict[str, str]:
    """The cluster's settings, from ``scontrol show config``."""
    pairs = (line.split("=", 1) for line in call("scontrol", "show", "config").splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def max_array_size() -> int:
    """How many jobs one array may have."""
    return int(configuration().get("MaxArraySize", "1001"))


def accounting() -> bool:
    """Whether sacct can answer."""
    return "slurmdbd" in configuration().get("AccountingStorageType", "") and bool(shutil.which("sacct"))
