"""Damaged schedules: whatever a file holds, it is a schedule or one readable error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitpipe.errors import InputError
from bitpipe.schedule import ScheduleSpec, check, generate, lower
from bitpipe.schedule.__main__ import main
from bitpipe.schedule.errors import ProgramError

PIECES = ["F0@0d", "B3@1u", "I2@1d", "W2@1d", "R0@0d", "F99@99d", "F0@0p7", "F-1@0d", "SYNC@0d", "STEP", "x"]
PIECES += ["", ",", "\n", "\t", "#", "\x00", "\u2028", "é", "[1]", "0F0", "1OVERLAP_F_B", "F" * 300, "9" * 30]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same schedule in both formats, as the command writes it."""
    texts = {}
    for suffix in (".txt", ".csv"):
        path = tmp_path_factory.mktemp("valid") / f"schedule{suffix}"
        assert main(["show", "1f1b_int", "-D", "2", "-N", "4", "--out", str(path)]) == 0
        texts[suffix] = path.read_text()
    return texts


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from([".txt", ".csv"]))
def test_a_damaged_file_is_a_schedule_or_one_error(
    valid: dict[str, str], tmp_path: Path, data: st.DataObject, suffix: str
) -> None:
    text = valid[suffix]
    for _ in range(data.draw(st.integers(1, 3))):
        at, cut = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(st.sampled_from(PIECES)) + text[at + cut :]
    path = tmp_path / f"damaged{suffix}"
    path.write_text(text)
    said = refusal(path)
    assert "\n" not in said


def refusal(path: Path) -> str:
    """Why a file is no schedule, in its first line; empty if it is one."""
    try:
        schedule = generate(ScheduleSpec(method=f"file:{path}", depth=2, micro_batches=4))
        check(lower(schedule, sync="eager"))
    except InputError as error:
        return str(error)
    except ProgramError as error:
        return str(error).partition("\n")[0]
    return ""


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200), suffix=st.sampled_from([".txt", ".csv"]))
def test_any_bytes_are_one_error(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"bytes{suffix}"
    path.write_bytes(content)
    with pytest.raises((InputError, ProgramError)):
        generate(ScheduleSpec(method=f"file:{path}", depth=2, micro_batches=4))
