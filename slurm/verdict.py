"""From what Slurm says about a job to a record's status and first cause. Pure."""

from __future__ import annotations

import re

from experiments.records.record import Cause, Status
from slurm.client import GONE, JobState
from slurm.plan import Request

MEMORY = re.compile(
    r"oom[-_ ]?kill|out of memory|exceeded (?:job |step )?memory limit|memory limit exceeded|MemoryError",
    re.IGNORECASE,
)


def verdict(state: JobState, request: Request, *, stderr: str = "") -> tuple[Status, Cause]:
    """Status and cause of a cell whose job ended, or was taken away, without a record of its own.

    Args:
        state: Slurm's last word.
        request: what the job had asked for.
        stderr: the end of its error output, where some versions of Slurm report memory.
    """
    where = f" on {state.nodes}" if state.nodes and state.nodes != "None assigned" else ""
    job = f"job {state.id}"
    if state.state == "OUT_OF_MEMORY" or (state.state != "TIMEOUT" and MEMORY.search(stderr)):
        line = next((line.strip() for line in stderr.splitlines() if MEMORY.search(line)), "")
        return Status.OOM, Cause(
            kind="memory", message=f"{job} ran out of memory{where}: {line}".rstrip(": ")
        )
    match state.state:
        case "TIMEOUT" | "DEADLINE":
            message = f"{job} reached its time limit of {request.minutes} minutes{where}"
            return Status.TIMEOUT, Cause(kind="slurm", message=message)
        case "CANCELLED":
            if "Dependency" in state.reason:
                return Status.CANCELLED, Cause(
                    kind="slurm", message=f"{job} never started: its canary failed"
                )
            by = f" {state.reason}" if state.reason.startswith("by user") else ""
            return Status.CANCELLED, Cause(kind="slurm", message=f"{job} was cancelled{by}")
        case "PREEMPTED":
            return Status.PREEMPTED, Cause(kind="slurm", message=f"{job} was preempted{where}")
        case "NODE_FAIL" | "BOOT_FAIL":
            return Status.FAILED, Cause(kind="node", message=f"{job}: a node failed{where}")
        case "REQUEUED" | "PENDING" | "REQUEUE_HOLD":
            return Status.PREEMPTED, Cause(
                kind="slurm", message=f"{job} was requeued by Slurm (preemption or a failed node)"
            )
    if state.state == GONE:
        return Status.FAILED, Cause(
            kind="slurm", message=f"{job} left no result, and Slurm no longer knows it (accounting is off)"
        )
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "no error output")
    return Status.FAILED, Cause(
        kind="slurm", message=f"{job} ended {state.state} without a record: {last[:300]}"
    )
