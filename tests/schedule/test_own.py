"""A user's own schedule: read, checked, and lowered like ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.errors import InputError
from bitpipe.schedule import (
    ProgramError,
    Schedule,
    ScheduleSpec,
    check,
    describe,
    generate,
    lower,
    method_of,
    placement_of,
)

TWO = """
# a 1F1B of two devices
F0@0d F1@0d B0@0d B1@0d   # device 0
F0@1d, B0@1d, F1@1d, B1@1d
"""


def spec(method: str, depth: int = 2, micro_batches: int = 2, **more: object) -> ScheduleSpec:
    return ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches, **more)  # type: ignore[arg-type]


def written(folder: Path, text: str) -> str:
    path = folder / "own.txt"
    path.write_text(text)
    return f"file:{path}"


def test_a_file_becomes_a_schedule_like_ours(tmp_path: Path) -> None:
    asked = spec(written(tmp_path, TWO))
    schedule = generate(asked)
    assert describe(schedule).makespan == describe(generate(spec("dapple"))).makespan == 9
    assert placement_of(asked).name == "sequential"
    assert not method_of(asked).bidirectional
    check(lower(schedule, sync="eager", width=2, tied=True))


@pytest.mark.parametrize("method", ["bitpipe", "chimera", "1f1b_int"])
@pytest.mark.parametrize("split", [False, True])
def test_our_schedules_written_down_read_back_the_same(tmp_path: Path, method: str, split: bool) -> None:
    ours = generate(spec(method, 4, 8, split_backward=split))
    text = "\n".join(" ".join(map(str, row)) for row in ours.orders)
    theirs = generate(spec(written(tmp_path, text), 4, 8))
    assert theirs.orders == ours.orders
    assert theirs.placement == ours.placement
    assert theirs.split_backward == split


def test_a_placement_of_your_own(tmp_path: Path) -> None:
    text = "F0@0d F0@3d B0@3d B0@0d\nF0@1d F0@2d B0@2d B0@1d\n"
    schedule = generate(spec(written(tmp_path, text), 2, 1))
    assert schedule.placement.name == "v"
    text = "F0@0d F0@1d B0@1d B0@0d\nF0@2d F0@3d B0@3d B0@2d\n"
    schedule = generate(spec(written(tmp_path, text), 2, 1))
    assert schedule.placement.table == ((0, 0, 1, 1),)
    assert schedule.placement.name == "own"
    assert describe(schedule).transfers == 2
    check(lower(schedule, sync="eager", width=2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0@0d F1@0d B0@0d B1@0d\nF0@1d B0@1d F1@1d", "B1@1d is missing on device 1"),
        ("F0@0d F1@0d B0@0d B1@0d\nB0@1d F0@1d F1@1d B1@1d", "deadlock"),
        ("F0@0d F0@1d F1@0d B0@0d B1@0d\nF0@1d B0@1d F1@1d B1@1d", "also lies on device 0"),
        ("F0@0d SEND_F0@1d F1@0d B0@0d B1@0d\nF0@1d B0@1d F1@1d B1@1d", "lowering adds the rest"),
    ],
)
def test_a_wrong_file_is_shown_where_it_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        generate(spec(written(tmp_path, text)))


def test_a_cap_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="the cap is 1"):
        generate(spec(written(tmp_path, TWO), cap=1))


def one_f_one_b(asked: ScheduleSpec) -> list[list[str]]:
    assert (asked.depth, asked.micro_batches) == (2, 2)
    return [["F0@0d", "F1@0d", "B0@0d", "B1@0d"], ["F0@1d", "B0@1d", "F1@1d", "B1@1d"]]


def whole(asked: ScheduleSpec) -> Schedule:
    return generate(spec("gpipe", asked.depth, asked.micro_batches))


def broken(asked: ScheduleSpec) -> list[list[str]]:
    raise RuntimeError(f"no idea for {asked.depth}")


def wrong(asked: ScheduleSpec) -> list[list[int]]:
    return [[asked.depth]]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_a_function_by_name() -> None:
    assert describe(generate(spec("test_own:one_f_one_b"))).makespan == 9
    assert generate(spec("test_own:whole", 4, 6)).method == "test_own:whole"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("file:nowhere.txt", "cannot read the file"),
        ("no_such_module_here:f", "cannot import 'no_such_module_here'"),
        ("test_own:one_f_one", r"no function 'one_f_one' \(did you mean one_f_one_b\?\)"),
        ("test_own:broken", r"raised RuntimeError: no idea for 2 \(.*test_own.py:\d+\)"),
        ("test_own:wrong", "expected actions or their texts, found 2"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(method: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        generate(spec(method))
    assert "\n" not in str(caught.value)


def test_it_has_the_shape_that_was_asked_for(tmp_path: Path) -> None:
    method = written(tmp_path, TWO)
    for asked, message in (
        (spec(method, depth=4), "depth=4: the schedule .* has depth=2"),
        (spec(method, micro_batches=3), "micro_batches=3"),
        (spec(method, chunks=2), "chunks=2"),
        (spec(method, split_backward=True), "split_backward=True"),
        (spec(method, pad=True), "fixed order"),
    ):
        with pytest.raises(InputError, match=message):
            generate(asked)
    with pytest.raises(InputError, match="action=F0"):
        generate(spec(written(tmp_path, "F0 F1")))
