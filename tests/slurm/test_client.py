"""What Slurm's commands print, read without a Slurm."""

from __future__ import annotations

import pytest

from bitpipe.errors import InputError
from slurm import client


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
    with pytest.raises(InputError, match="no answer within 0 s"):
        client.call("sleep", "5", timeout=0.05)
