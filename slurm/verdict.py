"""From what Slurm says about a job to a record's status and first cause. Pure."""

from __future__ import annotations

import signal as signals

from experiments.records.record import Cause, Status
from slurm.jobs import GONE, UNKNOWN, JobState
from slurm.step_words import MEMORY


def verdict(
    state: JobState, minutes: int, *, stderr: str = "", failed: str = "", canary: str = ""
) -> tuple[Status, Cause]:
    """Status and cause of a cell whose job ended, or was taken away, without a record of its own.

    Only a rank knows that a device's memory ran out. What Slurm ends for its memory is the host's, and
    no result: with another limit or other neighbours the cell may run.

    Args:
        state: Slurm's last word.
        minutes: the job's time limit.
        stderr: the end of its error output; some versions of Slurm report memory only there.
        failed: its nodes that are dead, where that is known.
        canary: why the job's canary failed, where that is known.
    """
    assigned = state.nodes and state.nodes != "None assigned"
    where = f" on {state.nodes}" if assigned else ""
    job = f"job {state.id}"
    words = next((line.strip() for line in stderr.splitlines() if MEMORY.search(line)), "")
    if state.state == "OUT_OF_MEMORY" or (state.state in ("FAILED", GONE) and words):
        message = f"{job} ran out of the host's memory{where}: {words}".rstrip(": ")
        return Status.FAILED, Cause(kind="memory", message=message)
    match state.state:
        case "TIMEOUT" | "DEADLINE":
            message = f"{job} reached its time limit of {minutes} minutes{where}"
            return Status.TIMEOUT, Cause(kind="slurm", message=message)
        case "CANCELLED":
            if "Dependency" in state.reason:
                message = f"{job} never started: its canary failed{f': {canary}' if canary else ''}"
                return Status.CANCELLED, Cause(kind="canary", message=message)
            by = f" {state.reason}" if state.reason.startswith("by user") else ""
            return Status.CANCELLED, Cause(kind="slurm", message=f"{job} was cancelled{by}")
        case "PREEMPTED":
            return Status.PREEMPTED, Cause(kind="slurm", message=f"{job} was preempted{where}")
        case "NODE_FAIL" | "BOOT_FAIL":
            what = f"node {failed} failed" if failed else f"a node failed{where}"
            return Status.FAILED, Cause(kind="node", message=f"{job}: {what}")
        case "REQUEUED" | "PENDING" | "REQUEUE_HOLD" | "SPECIAL_EXIT":
            why = "(scontrol requeue, preemption or a failed node)"
            if failed:
                why = f"after node {failed} failed"
            return Status.PREEMPTED, Cause(kind="slurm", message=f"{job} was requeued by Slurm {why}")
    if state.state in (GONE, UNKNOWN):
        message = f"{job} left no result, and Slurm no longer knows how it ended"
        return Status.FAILED, Cause(kind="slurm", message=message)
    if state.signal:
        name = signal_name(state.signal)
        message = f"{job} ended {state.state} without a record: killed by {name}{where}"
        return Status.FAILED, Cause(kind="signal", message=message, signal=name)
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "no error output")
    return Status.FAILED, Cause(
        kind="slurm", message=f"{job} ended {state.state} without a record: {last[:300]}"
    )


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
