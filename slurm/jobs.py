"""What Slurm says about jobs: the queue, then accounting, and who is to blame for an end."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from bitpipe.errors import InputError
from slurm import client


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What Slurm says about one job (one member of an array).

    Attributes:
        id: ``job`` or ``array_index``.
        state: ``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``TIMEOUT``, ``NODE_FAIL``, …
        reason: why it waits, or why it ended.
        nodes: node list, as Slurm writes it.
        ended: seconds since the epoch, None where it has not, or nobody knows.
        signal: number of the signal that ended it, 0 if none did.
    """

    id: str
    state: str
    reason: str = ""
    nodes: str = ""
    ended: float | None = None
    signal: int = 0

    @property
    def active(self) -> bool:
        """It may still produce something."""
        return self.state in ACTIVE

    @property
    def queued(self) -> bool:
        """It waits, for the first time or again."""
        return self.state in QUEUED

    @property
    def held(self) -> bool:
        """It will not start unless somebody does something; a user's own hold is theirs to end."""
        return self.queued and (
            self.state in ("REQUEUE_HOLD", "SPECIAL_EXIT") or bool(_HELD.search(self.reason))
        )


UNKNOWN = "UNKNOWN"  # nobody answers, or somebody else would have to ask
GONE = "GONE"  # Slurm no longer knows the job
QUEUED = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
ACTIVE = QUEUED | {
    "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED",
    UNKNOWN,
}  # fmt: skip
_HELD = re.compile(
    r"JobHeldAdmin|held$|requeued held|JobHoldMaxRequeue|BadConstraints|DependencyNeverSatisfied|"
    r"InvalidAccount|InvalidQOS|AccountNotAllowed"
)


def states(ids: Iterable[str]) -> dict[str, JobState]:
    """State of every job: from the queue, then from accounting where there is one.

    A job that neither knows is ``GONE``; ``UNKNOWN`` if accounting would have to answer and does not.

    Raises:
        NoAnswer: the queue cannot be asked.
    """
    wanted = list(ids)
    found = _queue(wanted)
    left = [id for id in wanted if id not in found]
    if left and client.accounting():
        try:
            found.update(_accounted(left))
        except client.NoAnswer:
            silent = {id: JobState(id=id, state=UNKNOWN, reason="slurmdbd does not answer") for id in left}
            found = {**silent, **found}
    return {id: _of(found, id) for id in wanted}


def _of(found: dict[str, JobState], id: str) -> JobState:
    """A member that ended while it waited has no line of its own: the array's says how."""
    whole = found.get(id.split("_")[0])
    if id in found:
        return found[id]
    if whole is not None and not whole.active:
        return JobState(id=id, state=whole.state, reason=whole.reason, ended=whole.ended)
    return JobState(id=id, state=GONE)


def _bases(ids: Iterable[str]) -> str:
    return ",".join(sorted({id.split("_")[0] for id in ids}, key=int))


def _queue(ids: list[str]) -> dict[str, JobState]:
    if not ids:
        return {}
    # By number, whoever submitted them; --array: one line per member.
    try:
        text = client.call("squeue", "-h", "-r", "-t", "all", "-j", _bases(ids), "-o", "%F|%K|%T|%r|%N|%e")
    except client.NoAnswer:
        raise
    except InputError:  # one job, which the controller has forgotten
        return {}
    found = {}
    for line in text.splitlines():
        base, index, state, reason, nodes, end = line.split("|")
        for id in [base] if index == "N/A" else members(f"{base}_[{index}]"):
            ended = None if state in ACTIVE else seconds_of(end)
            found[id] = JobState(id=id, state=state, reason=reason, nodes=nodes, ended=ended)
    return found


def members(id: str) -> list[str]:
    """Members of an array as Slurm writes them: ``7_[1-3,5%2]`` is 7_1, 7_2, 7_3 and 7_5."""
    base, bracket, inside = id.partition("_[")
    if not bracket:
        return [id]
    indices: list[int] = []
    for part in inside.rstrip("]").split("%")[0].split(","):
        first, _, last = part.partition("-")
        last, _, step = last.partition(":")
        if first.isdigit():
            indices += range(int(first), int(last or first) + 1, int(step or 1))
    return [f"{base}_{index}" for index in indices]


_FIELDS = "JobID,State,Reason,NodeList,End,ExitCode"


def _accounted(ids: list[str]) -> dict[str, JobState]:
    text = client.call("sacct", "-X", "-n", "-P", "-j", _bases(ids), "-o", _FIELDS, again=False)
    return {state.id: state for line in text.splitlines() for state in _row(line)}


def _row(line: str) -> list[JobState]:
    ids, state, reason, nodes, end, code = line.split("|")
    who = re.search(r"by (\d+)", state)
    number = code.partition(":")[2]
    return [
        JobState(
            id=id,
            state=state.split()[0],
            reason=f"by user {who[1]}" if who else reason,
            nodes=nodes,
            ended=seconds_of(end),
            signal=int(number) if number.isdigit() else 0,
        )
        for id in members(ids)
    ]


def details(id: str, *, timeout: float = client.TIMEOUT_S) -> dict[str, str]:
    """``scontrol show job`` as pairs; empty when the controller has forgotten the job.

    Raises:
        NoAnswer: the controller does not answer.
    """
    try:
        text = client.call("scontrol", "-o", "show", "job", id, timeout=timeout)
    except client.NoAnswer:
        raise
    except InputError:
        return {}
    return dict(pair.split("=", 1) for pair in text.split() if "=" in pair)


def ended_by(id: str) -> int:
    """Number of the signal that ended a job, as far as the controller still knows it; 0 if none did."""
    code = ""
    with contextlib.suppress(InputError):
        code = details(id).get("ExitCode", "")
    number = code.partition(":")[2]
    return int(number) if number.isdigit() else 0


ACCOUNTING_DELAY_S = 20.0
"""How long accounting may lag behind the controller before its silence counts as an answer."""


def earlier(id: str) -> JobState | None:
    """How the previous run of a requeued job ended, from accounting; None where that is not known.

    The controller requeues a job before accounting has heard of it, so an empty answer is asked again.
    """
    until = time.monotonic() + ACCOUNTING_DELAY_S
    while True:
        with contextlib.suppress(client.NoAnswer):
            if not client.accounting():
                return None
            if ended := _earlier_runs(id):
                return ended[-1]
        if time.monotonic() > until:
            return None
        time.sleep(0.5)


def _earlier_runs(id: str) -> list[JobState]:
    text = client.call("sacct", "-X", "-n", "-P", "-D", "-j", id, "-o", _FIELDS, again=False, timeout=10)
    rows = [state for line in text.splitlines() for state in _row(line)]
    return [row for row in rows if row.id == id and row.state in ("NODE_FAIL", "PREEMPTED", "REQUEUED")]


def failed_nodes(nodes: str) -> list[str]:
    """Those of a node list that Slurm holds for dead or does not hear from; none where it says nothing."""
    if not nodes or nodes == "None assigned":
        return []
    try:
        text = client.call("sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%T", again=False, timeout=10)
    except InputError:
        return []
    pairs = (line.split("|") for line in text.splitlines())
    return sorted({name for name, state in pairs if re.match(r"down|fail|unk|.*\*$", state)})


def seconds_of(text: str) -> float | None:
    """A time of Slurm's as seconds since the epoch; None for Unknown."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
