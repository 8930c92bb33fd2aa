"""Slurm's client commands: always with a timeout, and an unusual answer becomes one clear line."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from bitpipe.errors import InputError
from slurm.environment import scrubbed

TIMEOUT_S = 30.0
LOCAL = "hydra/launcher=local runs here"


class NoAnswer(InputError):
    """There is no Slurm here, or none that answers."""


def call(*command: str, timeout: float = TIMEOUT_S, stdin: str | None = None) -> str:
    """Standard output of a client command.

    Raises:
        NoAnswer: the command is not installed, or no controller answers it.
        InputError: the command refuses.
    """
    if not shutil.which(command[0]):
        raise NoAnswer("slurm", f"{command[0]} not found", "no Slurm on this machine", LOCAL)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, input=stdin, env=scrubbed()
        )
    except subprocess.TimeoutExpired as error:
        problem = f"no answer within {timeout:.0f} s; is slurmctld up?"
        raise NoAnswer("slurm", command[0], problem, f"try: scontrol ping; {LOCAL}") from error
    if done.returncode != 0:
        problem = first_error(done.stderr or done.stdout)
        if re.search(
            r"slurm\.conf|config(uration)? (source|file|server)|fetch config", problem, re.IGNORECASE
        ):
            raise NoAnswer("slurm", command[0], problem, f"is SLURM_CONF set? {LOCAL}")
        if re.search(r"unable to contact|connect", problem, re.IGNORECASE):
            raise NoAnswer("slurm", command[0], problem, f"is slurmctld up? {LOCAL}")
        raise InputError("slurm", command[0], problem)
    return done.stdout


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


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What Slurm says about one job (one member of an array).

    Attributes:
        id: ``job`` or ``array_index``.
        state: ``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``TIMEOUT``, ``NODE_FAIL``, …
        reason: why it waits, or why it ended.
        nodes: node list, as Slurm writes it.
        restarts: times it was requeued.
    """

    id: str
    state: str
    reason: str = ""
    nodes: str = ""
    restarts: int = 0

    @property
    def active(self) -> bool:
        """It may still produce something."""
        return self.state in ACTIVE


ACTIVE = {
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD",
    "REQUEUE_FED", "RESIZING", "SIGNALING", "STAGE_OUT", "SPECIAL_EXIT", "STOPPED", "UNKNOWN",
}  # fmt: skip
GONE = "GONE"  # Slurm no longer knows the job


def states(ids: Iterable[str]) -> dict[str, JobState]:
    """State of every job: from the queue, then from accounting where there is one, else ``GONE``."""
    wanted = list(ids)
    found = {state.id: state for state in _queue(wanted)}
    left = [id for id in wanted if id not in found]
    if left and accounting():
        found.update({state.id: state for state in _accounted(left)})
    return {id: found.get(id) or JobState(id=id, state=GONE) for id in wanted}


def _bases(ids: Iterable[str]) -> list[str]:
    return sorted({id.split("_")[0] for id in ids}, key=int)


def _queue(ids: list[str]) -> list[JobState]:
    if not ids:
        return []
    # --noheader --array: one line per member; ids unknown to the controller are an error, so ask for all
    # of this user's jobs and choose.
    wanted = set(_bases(ids))
    text = call("squeue", "-h", "-r", "-t", "all", "--me", "-o", "%F|%K|%T|%r|%N|%i")
    found = []
    for line in text.splitlines():
        base, index, state, reason, nodes, _ = line.split("|")
        if base in wanted:
            id = base if index == "N/A" else f"{base}_{index}"
            found.append(JobState(id=id, state=state, reason=reason, nodes=nodes))
    return found


def _accounted(ids: list[str]) -> list[JobState]:
    text = call("sacct", "-X", "-n", "-P", "-j", ",".join(_bases(ids)), "-o", "JobID,State,Reason,NodeList")
    found = []
    for line in text.splitlines():
        id, state, reason, nodes = line.split("|")
        who = re.search(r"by (\d+)", state)
        note = f"by user {who[1]}" if who else reason
        found.append(JobState(id=id, state=state.split()[0], reason=note, nodes=nodes))
    return found


def details(id: str) -> dict[str, str]:
    """``scontrol show job`` as pairs; empty when the controller has forgotten it."""
    try:
        text = call("scontrol", "-o", "show", "job", id)
    except InputError:
        return {}
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


ACCOUNTING_DELAY_S = 20.0
"""How long accounting may lag behind the controller before its silence counts as an answer."""


def earlier(id: str) -> JobState | None:
    """How the previous run of a requeued job ended, from accounting; None where that is not known.

    The controller requeues a job before accounting has heard of it, so an empty answer is asked again.
    """
    if not accounting():
        return None
    until = time.monotonic() + ACCOUNTING_DELAY_S
    while not (ended := _earlier_runs(id)):
        if time.monotonic() > until:
            return None
        time.sleep(0.5)
    _, state, reason, nodes = ended[-1]
    return JobState(id=id, state=state.split()[0], reason=reason, nodes=nodes)


def _earlier_runs(id: str) -> list[list[str]]:
    text = call("sacct", "-X", "-n", "-P", "-D", "-j", id, "-o", "JobID,State,Reason,NodeList")
    rows = [line.split("|") for line in text.splitlines()]
    return [
        row for row in rows if row[0] == id and row[1].split()[0] in ("NODE_FAIL", "PREEMPTED", "REQUEUED")
    ]
