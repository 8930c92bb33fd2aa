"""Slurm's daemons may be silent for a while: asked again, said once, and nothing made up meanwhile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from slurm import client, jobs


class Programs:
    """Stand-ins for Slurm's commands: each fails ``silent`` times, then says what it is to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def add(self, name: str, *, says: str = "", silent: int = 0, complaint: str = "", code: int = 1) -> None:
        (self.folder / f"{name}.says").write_text(says)
        script = self.folder / name
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {script}.asked\n'
            f"if [ $(wc -l < {script}.asked) -le {silent} ]; then echo '{complaint}' >&2; exit {code}; fi\n"
            f"cat {script}.says\n"
        )
        script.chmod(0o755)

    def asked(self, name: str) -> int:
        path = self.folder / f"{name}.asked"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.01)
    client.configuration.cache_clear()
    made.add("scontrol", says="ClusterName = c\nAccountingStorageType = accounting_storage/slurmdbd\n")
    made.add("sacct")
    made.add("squeue")
    return made


SILENT = [
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "slurm_load_jobs error: Socket timed out on send/recv operation",
    "slurm_load_jobs error: Zero Bytes were transmitted or received",
    "slurm_load_jobs error: Slurm backup controller in standby mode",
    "slurm_load_jobs error: Protocol authentication error",
    "squeue: error: something that nobody has seen before",
    "",
]


@pytest.mark.parametrize("complaint", SILENT)
def test_a_query_without_an_answer_is_asked_again_and_that_is_said_once(
    programs: Programs, complaint: str
) -> None:
    programs.add("squeue", says="7|N/A|RUNNING|None|n1|N/A\n", silent=4, complaint=complaint)
    said: list[str] = []
    with client.patient(60, said.append):
        assert jobs.states(["7"])["7"].state == "RUNNING"
    assert programs.asked("squeue") == 5
    assert len(said) == 1
    assert said[0].startswith("slurmctld does not answer (squeue: ")


def test_a_second_silence_is_said_again(programs: Programs) -> None:
    said: list[str] = []
    with client.patient(60, said.append):
        for _ in range(2):
            (programs.folder / "squeue.asked").unlink(missing_ok=True)
            programs.add("squeue", says="7|N/A|RUNNING|None|n1|N/A\n", silent=2, complaint=SILENT[0])
            jobs.states(["7"])
    assert len(said) == 2


def test_patience_ends(programs: Programs) -> None:
    programs.add("squeue", silent=99, complaint=SILENT[0])
    with client.patient(0.05, lambda _: None), pytest.raises(client.NoAnswer, match="is slurmctld up"):
        jobs.states(["7"])
    assert 1 < programs.asked("squeue") < 20


def test_nothing_is_submitted_twice(programs: Programs) -> None:
    """A submission whose acknowledgement was lost may be there."""
    programs.add("sbatch", silent=1, complaint="sbatch: error: Socket timed out on send/recv operation")
    with client.patient(60, lambda _: None), pytest.raises(client.NoAnswer):
        client.call("sbatch", "x")
    assert programs.asked("sbatch") == 1


def test_a_refusal_is_an_answer(programs: Programs) -> None:
    programs.add("scancel", silent=9, complaint="scancel: error: Access/permission denied")
    with client.patient(60, lambda _: None), pytest.raises(InputError, match="permission denied"):
        client.call("scancel", "7")
    assert programs.asked("scancel") == 1


def test_a_request_that_cannot_be_met_is_no_missing_configuration(programs: Programs) -> None:
    complaint = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    programs.add("sbatch", silent=9, complaint=complaint)
    with pytest.raises(InputError, match=r"Requested node configuration is not available$"):
        client.call("sbatch", "x")


def test_silent_accounting_leaves_jobs_unknown_and_names_its_daemon(programs: Programs) -> None:
    """What the queue knows is known all the same."""
    programs.add("squeue", says="7|N/A|RUNNING|None|n1|N/A\n")
    programs.add(
        "sacct", silent=99, complaint="sacct: error: Problem talking to the database: Connection refused"
    )
    found = jobs.states(["7", "8"])
    assert (found["7"].state, found["8"].state) == ("RUNNING", "UNKNOWN")
    assert found["8"].active  # something may still come of it
    assert "slurmdbd" in found["8"].reason
    with pytest.raises(client.NoAnswer, match="is slurmdbd up"):
        client.call("sacct")


def test_without_accounting_and_queue_a_job_is_gone(programs: Programs) -> None:
    programs.add("scontrol", says="AccountingStorageType = accounting_storage/none\n")
    complaint = "slurm_load_jobs error: Invalid job id specified"
    programs.add("squeue", silent=99, complaint=complaint)
    assert jobs.states(["7"])["7"].state == jobs.GONE
    programs.add("scontrol", silent=99, complaint=complaint)
    assert jobs.details("7") == {}


def test_silence_about_a_job_is_not_its_end(programs: Programs) -> None:
    programs.add("scontrol", silent=99, complaint=SILENT[0])
    with pytest.raises(client.NoAnswer):
        jobs.details("7")


@pytest.mark.parametrize(("written", "found"), [
    ("7", ["7"]),
    ("7_3", ["7_3"]),
    ("7_[1-3%1]", ["7_1", "7_2", "7_3"]),
    ("7_[0,2-3,9%4]", ["7_0", "7_2", "7_3", "7_9"]),
    ("7_[0-6:3]", ["7_0", "7_3", "7_6"]),
])  # fmt: skip
def test_members_of_an_array(written: str, found: list[str]) -> None:
    assert jobs.members(written) == found


@pytest.mark.parametrize(("squeue", "sacct"), [
    ("", "5_0|CANCELLED by 0|None|n1|2026-11-30T23:08:39|0:0\n"
         "5_[1-2%1]|CANCELLED by 0|JobArrayTaskLimit|None assigned|2026-11-30T23:08:39|0:0\n"),
    ("5|N/A|CANCELLED|JobArrayTaskLimit||2026-11-30T23:08:39\n"
     "5|0|CANCELLED|None|n1|2026-11-30T23:08:39\n", ""),
    ("5|0|CANCELLED|None|n1|2026-11-30T23:08:39\n"
     "5|1-2%1|CANCELLED|JobArrayTaskLimit||2026-11-30T23:08:39\n", ""),
])  # fmt: skip
def test_a_throttled_array_that_was_cancelled_while_it_waited(
    programs: Programs, squeue: str, sacct: str
) -> None:
    programs.add("squeue", says=squeue)
    programs.add("sacct", says=sacct)
    found = jobs.states(["5_0", "5_1", "5_2"])
    assert {state.state for state in found.values()} == {"CANCELLED"}


def test_members_that_wait_are_not_what_the_whole_array_was(programs: Programs) -> None:
    programs.add("squeue", says="5|1|PENDING|Resources||N/A\n5|N/A|CANCELLED|None||2026-11-30T23:08:39\n")
    found = jobs.states(["5_1", "5_2"])
    assert (found["5_1"].state, found["5_2"].state) == ("PENDING", "CANCELLED")


@pytest.mark.parametrize(("state", "reason", "held"), [
    ("PENDING", "JobHeldAdmin", True),
    ("PENDING", "launch failed requeued held", True),
    ("REQUEUE_HOLD", "", True),
    ("SPECIAL_EXIT", "None", True),
    ("PENDING", "JobHeldUser", False),  # theirs to end
    ("PENDING", "Resources", False),
    ("RUNNING", "None", False),
])  # fmt: skip
def test_what_slurm_holds_starts_only_when_somebody_acts(state: str, reason: str, held: bool) -> None:
    assert jobs.JobState(id="7", state=state, reason=reason).held == held


def test_the_signal_that_ended_a_job_is_known_to_accounting(programs: Programs) -> None:
    programs.add("sacct", says="7|FAILED|NonZeroExitCode|n1|2026-11-30T23:08:39|0:9\n")
    assert jobs.states(["7"])["7"].signal == 9


def test_nodes_that_are_dead_are_told_from_their_neighbours(programs: Programs) -> None:
    programs.add("sinfo", says="n1|allocated\nn2|down*\nn3|idle*\nn4|draining\n")
    assert jobs.failed_nodes("n[1-4]") == ["n2", "n3"]
    assert jobs.failed_nodes("None assigned") == []
    programs.add("sinfo", silent=99, complaint=SILENT[0])
    (programs.folder / "sinfo.asked").unlink()
    assert jobs.failed_nodes("n1") == []


def test_what_the_previous_run_of_a_job_came_to_is_not_worth_its_death(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmdbd may be away as well when a node dies."""
    monkeypatch.setattr(jobs, "ACCOUNTING_DELAY_S", 0.1)
    programs.add("sacct", silent=99, complaint="sacct: error: slurmdbd: Connection refused")
    assert jobs.earlier("7") is None


def test_the_stand_ins_are_asked(programs: Programs) -> None:
    assert subprocess.run(["squeue"], check=True).returncode == 0
