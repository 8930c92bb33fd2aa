"""From what Slurm says to a status and the first cause."""

from __future__ import annotations

import signal

import pytest

from slurm.job import seconds_left, why
from slurm.jobs import GONE, JobState
from slurm.step_words import exit_code, memory, node_failure, reason, struck, taken
from slurm.verdict import verdict

CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
KILLED = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0"


@pytest.mark.parametrize(("state", "status", "kind", "words"), [
    (JobState(id="5_1", state="TIMEOUT", nodes="n1"), "timeout", "slurm", "time limit of 7 minutes on n1"),
    (JobState(id="5", state="OUT_OF_MEMORY"), "failed", "memory", "ran out of the host's memory"),
    (JobState(id="5", state="CANCELLED", reason="by user 0"), "cancelled", "slurm", "cancelled by user 0"),
    (JobState(id="5", state="CANCELLED", reason="DependencyNeverSatisfied"), "cancelled", "canary",
     "its canary failed: no CUDA device"),
    (JobState(id="5", state="PREEMPTED", nodes="n1"), "preempted", "slurm", "was preempted on n1"),
    (JobState(id="5", state="NODE_FAIL", nodes="n[1-2]"), "failed", "node", "node n2 failed"),
    (JobState(id="5", state="REQUEUED"), "preempted", "slurm", "requeued by Slurm after node n2 failed"),
    (JobState(id="5", state=GONE), "failed", "slurm", "no longer knows how it ended"),
    (JobState(id="5", state="FAILED"), "failed", "slurm", "without a record: no error output"),
    (JobState(id="5", state="FAILED", signal=9), "failed", "signal", "killed by SIGKILL"),
])  # fmt: skip
def test_every_end_has_its_status(state: JobState, status: str, kind: str, words: str) -> None:
    found, cause = verdict(state, 7, failed="n2", canary="no CUDA device")
    assert (found, cause.kind) == (status, kind)
    assert words in cause.message
    assert "\n" not in cause.message


@pytest.mark.parametrize("state", ["FAILED", GONE])
def test_memory_in_the_error_output_is_the_hosts_and_no_result(state: str) -> None:
    """Some versions of Slurm only say FAILED. Another limit or other neighbours, and the cell runs."""
    status, cause = verdict(JobState(id="5", state=state), 7, stderr=f"noise\n{KILLED}\nmore")
    assert (status, cause.kind) == ("failed", "memory")
    assert KILLED in cause.message


@pytest.mark.parametrize(("state", "status"), [
    ("TIMEOUT", "timeout"), ("CANCELLED", "cancelled"), ("PREEMPTED", "preempted"), ("REQUEUED", "preempted"),
    ("NODE_FAIL", "failed"),
])  # fmt: skip
def test_a_word_about_memory_outranks_no_state_that_says_more(state: str, status: str) -> None:
    found, cause = verdict(JobState(id="5", state=state), 7, stderr=KILLED)
    assert found == status
    assert cause.kind != "memory"


def test_only_a_rank_knows_that_a_devices_memory_ran_out() -> None:
    assert verdict(JobState(id="5", state="FAILED"), 7, stderr=CUDA)[0] == "failed"


RUNNING = {
    "JobState": "RUNNING",
    "StartTime": "2026-01-01T10:00:00",
    "EndTime": "2026-01-01T10:07:00",
    "TimeLimit": "00:07:00",
    "PreemptTime": "None",
}
LONGER = {**RUNNING, "EndTime": "2099-01-01T10:00:00", "TimeLimit": "UNLIMITED"}


@pytest.mark.parametrize(("number", "details", "said", "announced"), [
    (signal.SIGALRM, RUNNING, "", "TIMEOUT"),
    (signal.SIGALRM, {**RUNNING, "EndTime": "2099-01-01T10:00:00"}, "", "reminder"),  # a longer limit
    (signal.SIGALRM, LONGER, "", "reminder"),
    (signal.SIGALRM, {}, "", "reminder"),  # nobody says that the limit is still the old one
    (signal.SIGUSR2, LONGER, "", "reminder"),
    (signal.SIGUSR2, {}, "", "reminder"),
    (signal.SIGUSR2, {**RUNNING, "PreemptTime": "2026-01-01T10:01:00"}, "", "PREEMPTED"),
    (signal.SIGTERM, {**RUNNING, "PreemptTime": "2026-01-01T10:01:00"}, "CANCELLED", "PREEMPTED"),
    (signal.SIGTERM, {**RUNNING, "JobState": "CANCELLED"}, "", "CANCELLED"),
    (signal.SIGTERM, {**RUNNING, "JobState": "COMPLETING"}, "CANCELLED", "TIMEOUT"),  # long after its limit
    (signal.SIGTERM, {**LONGER, "JobState": "COMPLETING"}, "CANCELLED", "CANCELLED"),
    (signal.SIGTERM, {**LONGER, "JobState": "COMPLETING"}, "", ""),
    (signal.SIGTERM, {**LONGER, "JobState": "PENDING", "Restarts": "1"}, "", "REQUEUED"),
    (signal.SIGTERM, {**LONGER, "JobState": "REQUEUE_HOLD"}, "", "REQUEUED"),
    (signal.SIGTERM, {**LONGER, "JobState": "PENDING"}, "NODE_FAIL", "NODE_FAIL"),
    (signal.SIGTERM, {}, "NODE_FAIL", "NODE_FAIL"),
    (signal.SIGTERM, {}, "TIMEOUT", "TIMEOUT"),
    (signal.SIGTERM, {}, "CANCELLED", ""),  # also written before a preemption's signal
    (signal.SIGTERM, LONGER, "", ""),
    (signal.SIGTERM, {}, "", ""),
])  # fmt: skip
def test_what_a_signal_announces(number: int, details: dict[str, str], said: str, announced: str) -> None:
    """Cancelled only if Slurm says so, nothing where nobody says anything, and a preemption is no time
    limit within the last minutes of one."""
    assert why(number, details, said) == announced


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
    ("srun: error: vnode2: task 1: Out Of Memory", 1, -9),
    ("srun: Job step aborted: Waiting up to 7 seconds for job step to finish.", 0, None),
])  # fmt: skip
def test_how_srun_says_that_a_task_ended(line: str, rank: int, code: int | None) -> None:
    assert exit_code(["noise", line], rank) == code


@pytest.mark.parametrize(("line", "ours"), [
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.2. Some of your", True),
    ("slurmstepd: error: StepId=5.1 exceeded memory limit (300 > 200), being killed", False),
    ("slurmstepd: error: Step 5.2 exceeded memory limit (300 > 200), being killed", True),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch", False),
    ("srun: error: vnode1: task 0: Out Of Memory", True),
    ("nothing of the kind", False),
])  # fmt: skip
def test_only_this_steps_words_are_about_this_step(line: str, ours: bool) -> None:
    assert bool(memory(["noise", line], "5.2")) == ours


JOB = "slurmstepd-n1: error: *** JOB 2 ON n1 CANCELLED AT 2026-11-30T23:08:27"


@pytest.mark.parametrize(("line", "state"), [
    (f"{JOB} ***", "CANCELLED"),
    (f"{JOB} DUE TO JOB REQUEUE ***", "REQUEUED"),
    (f"{JOB} DUE TO TIME LIMIT ***", "TIMEOUT"),
    (f"{JOB} DUE TO PREEMPTION ***", "PREEMPTED"),
    (f"{JOB} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***", "NODE_FAIL"),
    (f"{JOB} DUE TO SOMETHING NEW ***", ""),
    ("slurmstepd: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-30T23:08:27 ***", ""),
])  # fmt: skip
def test_why_the_step_daemon_ends_a_job(line: str, state: str) -> None:
    assert taken(["noise", line]) == state


@pytest.mark.parametrize(("srun", "tasks", "why_not"), [
    (["srun: error: n1: task 0: Exited with exit code 2"],
     ["slurmstepd: error: execve(): apptainer: No such file or directory"],
     "execve(): apptainer: No such file or directory"),
    (["srun: unrecognized option '--mpy=none'", 'Try "srun --help" for more information'], [],
     "unrecognized option '--mpy=none'"),
    (["srun: error: n1: tasks 0-1: Exited with exit code 1", "srun: Terminating StepId=5.0"],
     ["Traceback (most recent call last):", '  File "x.py"', "ModuleNotFoundError: No module named 'torch'"],
     "ModuleNotFoundError: No module named 'torch'"),
    (["srun: error: Unable to create step for job 5: Invalid account"], [],
     "Unable to create step for job 5: Invalid account"),
    (["srun: error: n1: task 0: Exited with exit code 1"], [],
     "srun: error: n1: task 0: Exited with exit code 1"),
    ([], [], "no output"),
])  # fmt: skip
def test_why_ranks_did_not_start(srun: list[str], tasks: list[str], why_not: str) -> None:
    assert reason(srun, tasks) == why_not


def test_who_was_struck_and_which_node_failed() -> None:
    lines = [
        "srun: error: vnode1: task 3: Killed",
        "srun: error: vnode1: tasks 0-2: Terminated",
        "srun: error: Node failure on vnode[2-3]",
    ]
    assert struck(lines) == (3, signal.SIGKILL)
    assert struck(lines[1:]) is None
    assert struck(["srun: error: n1: task 0: Exited with exit code 1", *lines]) is None  # then srun killed it
    assert node_failure(lines) == "vnode[2-3]"
