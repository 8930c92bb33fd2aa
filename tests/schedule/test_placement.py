"""Placements are routes: any number of pipes, and one source of who shares a stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.draw.panel import Panel
from bitpipe.draw.text import draw_text
from bitpipe.errors import InputError
from bitpipe.schedule import (
    Action,
    Kind,
    Placement,
    ScheduleSpec,
    check,
    cyclic,
    describe,
    evaluate,
    even_pipes,
    generate,
    lower,
    parse_action,
    ring,
    sequential,
    vee,
)


def test_constructors_say_where_stages_lie() -> None:
    assert sequential(3).routes == ((0, 1, 2),)
    assert cyclic(3, 2).routes == ((0, 1, 2, 0, 1, 2),)
    assert vee(3, 2).routes == ((0, 1, 2, 2, 1, 0),)
    assert vee(2, 2).mirrored().routes == ((0, 1, 1, 0), (1, 0, 0, 1))
    assert ring(2).routes == ((0, 0), (1, 1))
    assert ring(2).held == (((0, 0), (0, 1)), ((1, 0), (1, 1)))


def test_replicas_are_the_devices_of_all_pipes_that_hold_a_stage() -> None:
    assert sequential(4).replicas(1) == (1,)
    assert vee(4, 2).mirrored().replicas(1) == (1, 2)
    assert sequential(4).mirrored().replicas(0, -1) == (0, 3)
    assert ring(3).replicas(2) == (0, 1, 2)


@pytest.mark.parametrize(
    ("routes", "depth"), [(((0, 2),), 2), (((0, 1), (1,)), 2), ((), 2), (((0, 1, 1),), 2), (((0,),), 0)]
)
def test_routes_that_are_none_are_refused(routes: tuple[tuple[int, ...], ...], depth: int) -> None:
    with pytest.raises(InputError):
        Placement(name="own", depth=depth, routes=routes)


def test_micro_batches_spread_evenly_in_blocks() -> None:
    assert even_pipes(5, 2) == (0, 0, 0, 1, 1)
    assert even_pipes(4, 3) == (0, 0, 1, 2)
    assert even_pipes(2, 3) == (0, 1)


@pytest.mark.parametrize("pipe", [0, 1, 2, 10])
def test_the_text_form_knows_any_pipe(pipe: int) -> None:
    action = Action(Kind.F, 3, 5, pipe)
    assert parse_action(str(action)) == action


def test_a_pipe_has_one_text_only() -> None:
    for text in ("F3@5p0", "F3@5p1", "F3@5p02", "F3@5p"):
        with pytest.raises(InputError):
            parse_action(text)
    assert str(Action(Kind.F, 3, 5, 2)) == "F3@5p2"
    assert str(Action(Kind.SYNC, -1, 5, 1)) == "SYNC@5u"


def three_pipes(folder: Path) -> ScheduleSpec:
    rows = [
        "F0@0d F2@1p2 F1@2u B1@2u B2@1p2 B0@0d",
        "F1@0u F0@1d F2@2p2 B2@2p2 B0@1d B1@0u",
        "F2@0p2 F1@1u F0@2d B0@2d B1@1u B2@0p2",
    ]
    path = folder / "three.txt"
    path.write_text("\n".join(rows))
    return ScheduleSpec(method=f"file:{path}", depth=3, micro_batches=3)


def test_three_pipes_are_scheduled_lowered_and_drawn(tmp_path: Path) -> None:
    schedule = generate(three_pipes(tmp_path))
    assert schedule.pipes == (0, 1, 2)
    assert schedule.placement.routes == ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    assert describe(schedule).makespan == 9.0  # three pipes fill every device: no bubble at all
    program = lower(schedule, sync="eager")
    check(program)
    assert {str(i.action) for i in program.rows[0] if i.action.kind is Kind.SYNC} == {
        "SYNC@0d",
        "SYNC@1p2",
        "SYNC@2u",
    }
    drawn = draw_text(Panel(timeline=evaluate(schedule), placement=schedule.placement))
    assert "small letters: pipes u" in drawn
