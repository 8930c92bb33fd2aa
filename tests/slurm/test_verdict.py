"""From what Slurm says to a status and the first cause."""

from __future__ import annotations

import signal

import pytest

from slurm.client import GONE, JobState
from slurm.job import seconds_left, why
from slurm.plan import Request
from slurm.pool import exit_code
from slurm.verdict import verdict

REQUEST = Request(nodes=1, tasks_per_node=4, gpus_per_node=0, minutes=7)


@pytest.mark.parametrize(("state", "status", "words"), [
    (JobState(id="5_1", state="TIMEOUT", nodes="n1"), "timeout", "time limit of 7 minutes on n1"),
    (JobState(id="5", state="OUT_OF_MEMORY"), "oom", "ran out of memory"),
    (JobState(id="5", state="CANCELLED", reason="by user 0"), "cancelled", "cancelled by user 0"),
    (JobState(id="5", state="CANCELLED", reason="DependencyNeverSatisfied"), "cancelled", "canary failed"),
    (JobState(id="5", state="PREEMPTED", nodes="n1"), "preempted", "was preempted on n1"),
    (JobState(id="5", state="NODE_FAIL", nodes="n1"), "failed", "a node failed on n1"),
    (JobState(id="5", state="REQUEUED"), "preempted", "requeued by Slurm"),
    (JobState(id="5", state=GONE), "failed", "no longer knows it"),
    (JobState(id="5", state="FAILED"), "failed", "without a record: no error output"),
])  # fmt: skip
def test_every_end_has_its_status(state: JobState, status: str, words: str) -> None:
    found, cause = verdict(state, REQUEST)
    assert found == status
    assert words in cause.message
    assert "\n" not in cause.message


@pytest.mark.parametrize("line", [
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0",
    "slurmstepd: error: Step 5.0 exceeded memory limit (300 > 200), being killed",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
])  # fmt: skip
def test_memory_in_the_error_output_is_oom_where_slurm_only_says_failed(line: str) -> None:
    status, cause = verdict(JobState(id="5", state="FAILED"), REQUEST, stderr=f"noise\n{line}\nmore")
    assert status == "oom"
    assert line in cause.message


RUNNING = {
    "JobState": "RUNNING",
    "StartTime": "2026-01-01T10:00:00",
    "TimeLimit": "00:07:00",
    "PreemptTime": "None",
}


@pytest.mark.parametrize(("number", "details", "announced"), [
    (signal.SIGALRM, RUNNING, "TIMEOUT"),
    (signal.SIGUSR2, {**RUNNING, "TimeLimit": "UNLIMITED"}, "reminder"),
    (signal.SIGUSR2, {**RUNNING, "PreemptTime": "2026-01-01T10:01:00"}, "PREEMPTED"),
    (signal.SIGTERM, {**RUNNING, "PreemptTime": "2026-01-01T10:01:00"}, "PREEMPTED"),
    (signal.SIGTERM, {**RUNNING, "JobState": "CANCELLED"}, "CANCELLED"),
    (signal.SIGTERM, {**RUNNING, "JobState": "COMPLETING"}, "TIMEOUT"),  # long after its limit
    (signal.SIGTERM, {**RUNNING, "JobState": "COMPLETING", "TimeLimit": "UNLIMITED"}, "CANCELLED"),
    (signal.SIGTERM, {}, "CANCELLED"),
])  # fmt: skip
def test_what_a_signal_announces(number: int, details: dict[str, str], announced: str) -> None:
    """Also within the last minutes of a short limit, where a preemption is no time limit."""
    assert why(number, details) == announced


def test_time_left() -> None:
    assert seconds_left({"EndTime": "Unknown"}) is None
    assert seconds_left({"EndTime": "2026-01-01T10:00:00", "TimeLimit": "UNLIMITED"}) is None
    assert seconds_left({"EndTime": "1970-01-01T00:00:00"}) < 0


@pytest.mark.parametrize(("line", "rank", "code"), [
    ("srun: error: vnode1: task 3: Killed", 3, -9),
    ("srun: error: vnode1: tasks 0,2-3: Exited with exit code 7", 2, 7),
    ("srun: error: vnode1: tasks 0,2-3: Exited with exit code 7", 1, None),
    ("srun: error: vnode2: task 12: Segmentation fault (core dumped)", 12, -11),
    ("srun: error: vnode2: task 12: Terminated", 12, -15),
    ("srun: Job step aborted: Waiting up to 7 seconds for job step to finish.", 0, None),
])  # fmt: skip
def test_how_srun_says_that_a_task_ended(line: str, rank: int, code: int | None) -> None:
    assert exit_code(["noise", line], rank) == code
