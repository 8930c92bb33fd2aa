"""What Slurm's commands print, read without a Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.errors import InputError
from slurm import client
from slurm.doctor import examine


@pytest.mark.parametrize(("text", "minutes"), [
    ("30:00", 30), ("2:00:00", 120), ("1-00:00:00", 1440), ("1-12", 2160), ("10", 10), ("infinite", None),
    ("UNLIMITED", None),
])  # fmt: skip
def test_time_limits(text: str, minutes: int | None) -> None:
    assert client.minutes_of(text) == minutes


@pytest.mark.parametrize(("text", "gpus"), [
    ("gpu:8", 8), ("gpu:a100:4(S:0-1)", 4), ("gpu:a100:4(S:0-1),gpu:v100:2", 6), ("(null)", 0),
    ("tmpdisk:9", 0),
])  # fmt: skip
def test_gpus_of_a_node(text: str, gpus: int) -> None:
    assert client.gpus_in(text) == gpus


def test_the_line_that_says_why() -> None:
    text = (
        "sbatch: error: AssocMaxSubmitJobLimit\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    )
    assert client.first_error(text) == "Batch job submission failed: Invalid partition name specified"
    assert client.first_error("") == "no reason given"


def test_no_slurm_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match=r"sbatch not found.*hydra/launcher=local"):
        client.call("sbatch", "--version")


def test_a_silent_controller_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no answer within 0 s.*hydra/launcher=local"):
        client.call("sleep", "5", timeout=0.05)


@pytest.mark.parametrize(("says", "asks"), [
    ("scontrol: error: _establish_config_source: failed to fetch config", "is SLURM_CONF set?"),
    ("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)", "is slurmctld up?"),
])  # fmt: skip
def test_a_controller_that_is_not_there_is_one_line_that_says_what_runs_here(
    says: str, asks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("scontrol", "sinfo"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(client.NoAnswer) as raised:
        client.call("scontrol", "show", "config")
    assert asks in str(raised.value)
    assert "hydra/launcher=local runs here" in str(raised.value)
    assert "\n" not in str(raised.value)

    assert examine(tmp_path / "results", None, timeout=1) == 1
    said = capsys.readouterr().out
    assert "FAIL  controller: sinfo: " in said
    assert "fix: " in said
    assert "hydra/launcher=local" in said


def test_a_refusal_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: Invalid partition' >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InputError, match=r"^slurm=sbatch: Invalid partition$") as raised:
        client.call("sbatch")
    assert not isinstance(raised.value, client.NoAnswer)


SINFO = """\
main*|idle|gpu:8|1:00:00|32
main*|idle~|gpu:8|1:00:00|32
main*|drained|gpu:8|1:00:00|32
slow|powering_down|(null)|infinite|64
slow|powered_down|(null)|infinite|64
slow|down*|(null)|infinite|64
"""


def test_nodes_that_save_power_are_usable_and_drained_ones_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "call", lambda *command, **more: SINFO)
    found = client.partitions()
    assert (found["main"].usable, found["main"].nodes, found["main"].default) == (2, 3, True)
    assert (found["slow"].usable, found["slow"].nodes) == (2, 3)


@pytest.mark.parametrize(("says", "line"), [
    ("sbatch: unrecognized option '--gpuss=2'\nTry \"sbatch --help\" for more information",
     "sbatch: unrecognized option '--gpuss=2'"),
    ("sbatch: error: Requested node configuration is not available",
     "Requested node configuration is not available"),
    ("sbatch: error: Invalid generic resource (gres) specification\nsbatch: Try --help",
     "Invalid generic resource (gres) specification"),
])  # fmt: skip
def test_a_request_that_cannot_be_met_names_the_option_and_not_slurm_conf(
    says: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text(says)
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InputError) as raised:
        client.call("sbatch")
    assert not isinstance(raised.value, client.NoAnswer)
    assert str(raised.value) == f"slurm=sbatch: {line}"
