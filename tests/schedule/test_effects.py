"""One table says what actions do; what follows from it, and schedules that only it makes possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.schedule import (
    Kind,
    ProgramError,
    ScheduleSpec,
    check,
    evaluate,
    generate,
    held_chunks,
    lower,
    parse_action,
    sequential,
)
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.effects import EFFECTS, FINISHES, Item, keeps
from bitpipe.schedule.search import search

# B and I, W side by side: micro-batch 0 whole, micro-batch 1 split.
MIXED = ["F0@0d F1@0d B0@0d I1@0d W1@0d", "F0@1d B0@1d F1@1d I1@1d W1@1d"]
RECOMPUTED = ["F0@0d F1@0d R0@0d B0@0d R1@0d B1@0d", "F0@1d B0@1d F1@1d B1@1d"]


def own(folder: Path, rows: list[str]) -> ScheduleSpec:
    path = folder / "own.txt"
    path.write_text("\n".join(rows))
    return ScheduleSpec(method=f"file:{path}", depth=2, micro_batches=2)


def test_activations_are_held_from_what_makes_them_to_what_frees_them() -> None:
    assert {kind: keeps(kind) for kind in EFFECTS} == {
        Kind.F: 1,
        Kind.B: -1,
        Kind.I: 0,
        Kind.W: -1,
        Kind.R: 1,
    }
    assert keeps(Kind.F, recomputed=True) == 0
    assert {Kind.B, Kind.W} == FINISHES


def test_every_item_freed_was_made_or_came_from_the_stage_before() -> None:
    made = {item for effect in EFFECTS.values() for item, _ in effect.makes}
    assert {item for effect in EFFECTS.values() for item, _ in effect.frees} <= made
    assert {item for effect in EFFECTS.values() for item, _ in effect.reads} <= made | {Item.WEIGHTS}


@pytest.mark.parametrize(("split", "before"), [(False, [-1, 0, 1, 2]), (True, [-1, 0, 1, 2, 2, 3])])
def test_a_micro_batch_is_a_chain_with_the_weight_gradients_hanging_off(
    split: bool, before: list[int]
) -> None:
    assert Codes.even(sequential(2), 1, split_backward=split).before == before


def test_whole_and_split_backwards_side_by_side(tmp_path: Path) -> None:
    schedule = generate(own(tmp_path, MIXED))
    assert [" ".join(map(str, row)) for row in schedule.orders] == MIXED
    ends = {str(event.action): event.end for event in evaluate(schedule).events}
    assert ends["B0@1d"] == 4.0  # whole: two units after its forward at 2
    assert ends["I1@1d"] == 6.0
    assert ends["B0@0d"] == 6.0
    assert ends["I1@0d"] == 7.0  # does not wait for W1@1d, which ends at 7
    assert held_chunks(schedule) == (2, 1)
    for sync in ("eager", "late"):
        check(lower(schedule, sync=sync, width=2, tied=True))


def test_a_search_splits_all_backwards_where_some_are(tmp_path: Path) -> None:
    found = search(own(tmp_path, MIXED), effort=1_000)
    kinds = {action.kind for row in found.schedule.orders for action in row}
    assert kinds == {Kind.F, Kind.I, Kind.W}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["F0@0d F1@0d B0@0d I1@0d", MIXED[1]], "W1@0d is missing on device 0"),
        (["F0@0d F1@0d B0@0d I1@0d W1@0d B1@0d", MIXED[1]], "a backward is either B, or I and W"),
        (["F0@0d F1@0d B0@0d W1@0d I1@0d", MIXED[1]], "deadlock"),
    ],
)
def test_half_a_backward_is_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        generate(own(tmp_path, rows))


def test_a_recomputed_chunk_is_held_from_its_recomputation_on(tmp_path: Path) -> None:
    schedule = generate(own(tmp_path, RECOMPUTED))
    assert held_chunks(schedule) == (1, 1)
    ends = {str(event.action): event.end for event in evaluate(schedule).events}
    assert ends["R0@0d"] == 3.0  # reads its input only: it need not wait for the gradient
    check(lower(schedule, sync="eager", width=2))


def test_a_backward_does_not_run_before_its_recomputation(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="deadlock"):
        generate(own(tmp_path, ["F0@0d F1@0d B0@0d R0@0d R1@0d B1@0d", RECOMPUTED[1]]))


@pytest.mark.parametrize(
    "text", ["R3@5d", "SEND_S3@5u", "RECV_P0@1p2", "WAIT_G0@1d", "SCATTER@5d", "STEP@5d"]
)
def test_new_actions_have_a_text_form(text: str) -> None:
    assert str(parse_action(text)) == text
