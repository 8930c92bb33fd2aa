"""A user's own schedule: read, checked, and lowered like ours."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    assert schedule.placement.routes == ((0, 0, 1, 1),)
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


def leaves(asked: ScheduleSpec) -> list[list[str]]:
    sys.exit(0)


def wrong(asked: ScheduleSpec) -> list[list[int]]:
    return [[asked.depth]]


async def later(asked: ScheduleSpec) -> list[list[str]]:
    return one_f_one_b(asked)


async def asynchronous_rows(asked: ScheduleSpec) -> Any:
    yield ["F0@0d"]


def nothing(asked: ScheduleSpec) -> None:
    return None


def number(asked: ScheduleSpec) -> list[int]:
    return [asked.depth]


def no_arguments() -> list[list[str]]:
    return []


def rows_one_by_one(asked: ScheduleSpec) -> Iterator[Iterator[str]]:
    return (iter(row) for row in one_f_one_b(asked))


def breaks_half_way(asked: ScheduleSpec) -> Iterator[list[str]]:
    yield ["F0@0d", "B0@0d"]
    raise RuntimeError("half way")


class Stop(BaseException):
    """Not an Exception."""


def stops(asked: ScheduleSpec) -> list[list[str]]:
    raise Stop("no more")


def closes(asked: ScheduleSpec) -> list[list[str]]:
    raise GeneratorExit


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")

    __repr__ = __str__


def speechless(asked: ScheduleSpec) -> list[list[str]]:
    raise Mute


def unprintable(asked: ScheduleSpec) -> list[list[Mute]]:
    return [[Mute()]]


def interrupted(asked: ScheduleSpec) -> list[list[str]]:
    raise KeyboardInterrupt


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
        ("no_such_module_here:f", r"cannot import 'no_such_module_here': .*\(is it on PYTHONPATH\?\)"),
        ("..:f", r"cannot import '..': TypeError"),
        (":f", "cannot import '': ValueError"),
        ("test_own:leaves", r"raised SystemExit: 0 \(.*test_own.py:\d+\)"),
        ("test_own:one_f_one", r"no function 'one_f_one' \(did you mean one_f_one_b\?\)"),
        ("test_own:broken", r"raised RuntimeError: no idea for 2 \(.*test_own.py:\d+\)"),
        ("test_own:wrong", "expected actions or their texts, found 2"),
        ("test_own:unprintable", "expected actions or their texts, found a Mute$"),
        ("test_own:number", "expected rows of actions, found 2$"),
        ("test_own:nothing", "expected a schedule or rows, found None$"),
        ("test_own:later", "expected a schedule or rows, found a coroutine$"),
        ("test_own:asynchronous_rows", "expected a schedule or rows, found an async_generator$"),
        ("test_own:stops", r"raised Stop: no more \(.*test_own.py:\d+\)$"),
        ("test_own:closes", r"raised GeneratorExit \(.*test_own.py:\d+\)$"),
        ("test_own:speechless", r"raised Mute \(.*test_own.py:\d+\)$"),
        ("test_own:breaks_half_way", r"raised RuntimeError: half way \(.*test_own.py:\d+\)$"),
        ("test_own:no_arguments", r"raised TypeError: .*1 was given$"),
        ("builtins:len", r"raised TypeError: .*has no len\(\)$"),
        ("time:sleep", "raised TypeError: [^()]*$"),
        ("sys:exit", "raised SystemExit: "),
        ("math:sqrt", "raised TypeError: [^()]*$"),
        ("file:.", "expected a regular file$"),
        ("file:/dev/zero", "expected a regular file$"),
        ("file:a\0b", "cannot read the file: embedded null byte$"),
        (f"file:{'x' * 5000}/y", "cannot read the file: File name too long"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(method: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        generate(spec(method))
    assert "\n" not in str(caught.value)
    assert "schedule/own.py" not in str(caught.value)


def test_a_refused_coroutine_leaves_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(InputError, match="found a coroutine"):
        generate(spec("test_own:later"))
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


def test_rows_may_come_one_by_one() -> None:
    assert describe(generate(spec("test_own:rows_one_by_one"))).makespan == 9


def test_an_interrupt_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        generate(spec("test_own:interrupted"))


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.txt")
    with pytest.raises(InputError, match="expected a regular file"):
        generate(spec(f"file:{tmp_path / 'own.txt'}"))


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    text = "F0@0d F1@0d B0@0d B1@0d\nF0@1d B0@1d F1@1d B1@1d\n"
    (tmp_path / "own.txt").write_text(text, encoding="utf-8-sig")
    assert describe(generate(spec(f"file:{tmp_path / 'own.txt'}"))).makespan == 9


def test_the_line_named_is_the_users_also_when_a_library_patches_sys_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patched = compile("def exit(code=0):\n    raise SystemExit(code)", "/lib/hooks.py", "exec")
    names: dict[str, Any] = {}
    exec(patched, names)
    monkeypatch.setattr(sys, "exit", names["exit"])
    with pytest.raises(InputError, match=r"raised SystemExit: 0 \(.*test_own.py:\d+\)"):
        generate(spec("test_own:leaves"))


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


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:", r"SyntaxError: .*line 1"),
        ("import no_such_package_here", "ModuleNotFoundError: No module named 'no_such_package_here'$"),
        ("from os import no_such_name", "ImportError: cannot import name"),
        ("raise KeyError('first\\nsecond')", "KeyError"),
        ("raise RuntimeError('first\\nsecond')", "RuntimeError: first$"),
        ("raise SystemExit", "SystemExit$"),
        ("raise SystemExit(0)", "SystemExit: 0$"),
    ],
)
def test_a_module_that_fails_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"failing_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    with pytest.raises(InputError, match=f"cannot import '{name}': {message}") as caught:
        generate(spec(f"{name}:f"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("own.txt", "# rows\n\nF0@0d\nfoo B0@0d", r"own.txt line 4: action=foo: expected"),
        ("own.txt", f"F{'9' * 5000}@0d", "own.txt line 1: action=F999"),
        ("own.csv", "0F0,0B0\n\n1F0,x", r"own.csv line 3: csv cell=x: expected"),
        ("own.csv", f"{'0' * 200_000}F0", r"own.csv: line 1: field larger"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        generate(spec(f"file:{tmp_path / name}"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0@0d B0@0d\nF0@99999999999d B0@99999999999d", "no device holds stage 1d, .* 99999999999"),
        ("F0@0d F0@2d B0@2d B0@0d\nF0@3d B0@3d", "no device holds stage 1d, but the last stage is 3"),
        ("F0@0d F1@0u B1@0u B0@0d\nF0@1d B0@1d", "no device holds stage 1u"),
        ("F0@0d F99999999999@0d\nF0@1d", "micro-batch 1 is missing, but the last one is 99999999999"),
    ],
)
def test_gaps_and_huge_numbers_are_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    start = time.perf_counter()
    with pytest.raises((InputError, ProgramError), match=message) as caught:
        generate(spec(written(tmp_path, text)))
    assert time.perf_counter() - start < 5
    assert "\n" not in str(caught.value)


def test_a_function_is_not_asked_for_more_than_can_be_generated() -> None:
    with pytest.raises(InputError, match="at most 10000000 are generated"):
        generate(spec("test_own:broken", micro_batches=99_999_999_999))


def test_a_micro_batch_in_two_pipes_is_told_the_rule(tmp_path: Path) -> None:
    numbered_per_pipe = "F0@0d F0@1u B0@1u B0@0d\nF0@0u F0@1d B0@1d B0@0u"
    with pytest.raises(ProgramError, match=r"F0@1u: micro-batch 0 already is in the down pipe; .* all pipes"):
        generate(spec(written(tmp_path, numbered_per_pipe)))


def test_any_micro_batch_may_take_any_pipe(tmp_path: Path) -> None:
    rows = [
        "F0@0d F2@0d F1@1u F3@1u B1@1u B3@1u B0@0d B2@0d",
        "F1@0u F3@0u F0@1d F2@1d B0@1d B2@1d B1@0u B3@0u",
    ]
    schedule = generate(spec(written(tmp_path, "\n".join(rows)), micro_batches=4))
    assert schedule.pipes == (0, 1, 0, 1)
    assert [" ".join(map(str, row)) for row in schedule.orders] == rows
    check(lower(schedule, sync="eager"))
