"""Programs: communication in the sender's order, all-reduces in one order, every fault refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bitpipe.errors import InputError
from bitpipe.schedule import (
    Action,
    Instruction,
    Kind,
    Program,
    ProgramError,
    Schedule,
    ScheduleSpec,
    check,
    check_schedule,
    generate,
    lower,
    parse_action,
)

RECEIVES = (Kind.RECV_F, Kind.RECV_B)
SENDS = (Kind.SEND_F, Kind.SEND_B)


def program(method: str = "bitpipe", depth: int = 4, micro_batches: int = 8, **more: object) -> Program:
    lowering = {key: more.pop(key) for key in ("width", "tied") if key in more}
    sync = str(more.pop("sync", "eager"))
    spec = ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches, **more)  # type: ignore[arg-type]
    return lower(generate(spec), sync=sync, **lowering)  # type: ignore[arg-type]


def texts(row: tuple[Instruction, ...]) -> list[str]:
    return [str(instruction.action) for instruction in row]


@pytest.mark.parametrize(
    "made",
    [program(), program(early_forward=True), program("1f1b_int"), program("mixpipe"), program("chimera")],
    ids=["bitpipe", "early forward", "1f1b_int", "mixpipe", "chimera"],
)
def test_every_pair_of_devices_receives_in_the_sender_s_order(made: Program) -> None:
    for source, sender in enumerate(made.rows):
        for target, receiver in enumerate(made.rows):
            sent = [str(i.action)[4:] for i in sender if i.action.kind in SENDS and i.peer == target]
            received = [str(i.action)[4:] for i in receiver if i.action.kind in RECEIVES and i.peer == source]
            assert sent == received


def test_a_turn_of_the_v_stays_on_its_device() -> None:
    row = texts(program(micro_batches=4).rows[3])
    assert "F0@3d" in row
    assert "F0@4d" in row
    assert not any(text in row for text in ("SEND_F0@4d", "RECV_F0@4d", "WAIT_F0@4d"))


def test_sequence_numbers_are_one_order_that_sends_before_it_waits() -> None:
    made = program(early_forward=True, tied=True, placement="cyclic")
    everything = sorted((i for row in made.rows for i in row), key=lambda i: i.sequence)
    assert [i.sequence for i in everything] == list(range(len(everything)))
    seen: set[str] = set()
    for instruction in everything:
        text = str(instruction.action)
        if text.startswith("WAIT"):
            assert "SEND" + text[4:] in seen
        seen.add(text)


def test_eager_sync_starts_right_after_the_last_backward_and_late_at_the_end() -> None:
    eager = texts(program(micro_batches=4).rows[0])
    late = texts(program(micro_batches=4, sync="late").rows[0])
    assert eager.index("SYNC@4u") < eager.index("B3@3u")
    assert late[-5:] == ["SYNC@7d", "SYNC@4u", "SYNC@3u", "SYNC@0d", "STEP"]
    assert texts(program(micro_batches=4, sync="none").rows[0])[-2:] == ["B1@0d", "STEP"]


def test_one_replica_needs_no_all_reduce() -> None:
    assert program("dapple").sync_order == ()
    assert program("dapple", width=2).sync_order == (3, 2, 1, 0)
    assert program("bitpipe").sync_order[-1] == 0


def test_a_tied_embedding_on_two_devices_has_an_all_reduce_of_its_own() -> None:
    ties = [sum(i.action.kind is Kind.TIE for i in row) for row in program("dapple", tied=True).rows]
    assert ties == [1, 0, 0, 1]
    assert not any(i.action.kind is Kind.TIE for row in program(tied=True).rows for i in row)
    cyclic = program(tied=True, placement="cyclic")
    assert [sum(i.action.kind is Kind.TIE for i in row) for row in cyclic.rows] == [1, 0, 0, 1]


def late(schedule: Schedule, stage: int) -> Schedule:
    """The weight gradients of a stage as the last actions of their devices."""
    rows = [
        tuple(sorted(row, key=lambda action: action.kind is Kind.W and action.stage == stage))
        for row in schedule.orders
    ]
    return replace(schedule, orders=tuple(rows), cap=None)


@pytest.mark.parametrize("stage", range(8))
@pytest.mark.parametrize("sync", ["eager", "late"])
@pytest.mark.parametrize("placement", ["v", "cyclic"])
def test_an_all_reduce_waits_for_weight_gradients_wherever_they_stand(
    stage: int, sync: str, placement: str
) -> None:
    """Also for the head's, which under V falls into the embedding that stage 0 sums."""
    spec = ScheduleSpec(method="bitpipe", depth=4, micro_batches=8, placement=placement, split_backward=True)
    check(lower(late(generate(spec), stage), sync=sync, tied=True))


def test_an_embedding_summed_before_the_head_has_used_it_is_refused() -> None:
    spec = ScheduleSpec(method="bitpipe", depth=4, micro_batches=4, split_backward=True)
    untied = lower(late(generate(spec), 7), sync="eager")
    check(untied)
    with pytest.raises(ProgramError, match=r"SYNC@0. starts before W\d@7. has used the embedding"):
        check(replace(untied, tied=True))


def test_a_device_reuses_receive_buffers() -> None:
    few, many = program("dapple", micro_batches=8), program("dapple", micro_batches=64)
    assert few.slots == many.slots
    assert max(many.slots) <= 9


def test_the_replicas_of_odd_depth_meet_on_one_device() -> None:
    with pytest.raises(InputError, match=r"depth=5: .*nearest: 4 or 6"):
        program(depth=5, micro_batches=5)
    check(program(depth=5, micro_batches=5, sync="none"))


# --- every fault, one at a time


def swap(made: Program, device: int, first: str, second: str) -> Program:
    """Exchange two instructions of a device, sequence numbers kept in order."""
    row = list(made.rows[device])
    names = texts(made.rows[device])
    a, b = names.index(first), names.index(second)
    row[a], row[b] = row[b]._replace(sequence=row[a].sequence), row[a]._replace(sequence=row[b].sequence)
    return replace_row(made, device, row)


def drop(made: Program, device: int, text: str) -> Program:
    return replace_row(made, device, [i for i in made.rows[device] if str(i.action) != text])


def replace_row(made: Program, device: int, row: list[Instruction]) -> Program:
    rows = list(made.rows)
    rows[device] = tuple(row)
    return replace(made, rows=tuple(rows))


def reslot(made: Program, device: int, text: str, slot: int) -> Program:
    row = [i._replace(slot=slot) if str(i.action) == text else i for i in made.rows[device]]
    return replace_row(made, device, row)


FAULTS: dict[str, tuple[Callable[[Program], Program], str]] = {
    "compute before its input": (lambda p: swap(p, 1, "WAIT_F0@1d", "F0@1d"), "needs slot|runs before"),
    "a wait without a receive": (lambda p: drop(p, 1, "RECV_F0@1d"), "slot"),
    "a receive without a send": (lambda p: drop(p, 0, "SEND_F3@1d"), "deadlock|would receive"),
    "a send before its data": (lambda p: swap(p, 0, "F0@0d", "SEND_F0@1d"), "something to send"),
    "receives in another order": (lambda p: swap(p, 1, "RECV_F0@1d", "RECV_F1@1d"), "would receive what"),
    "compute out of order": (lambda p: swap(p, 0, "F0@0d", "F1@0d"), "differs from the schedule"),
    "compute left out": (lambda p: drop(p, 0, "F0@0d"), "differs from the schedule"),
    "a buffer out of range": (lambda p: reslot(p, 1, "RECV_F0@1d", 99), "slot 99 .*out of range"),
    "a buffer reused early": (lambda p: reslot(p, 1, "RECV_F1@1d", 0), "still in use"),
    "no step": (lambda p: drop(p, 2, "STEP"), "does not end with STEP"),
    "an all-reduce left out": (lambda p: drop(p, 2, "SYNC@6u"), "SYNC@6u"),
    "an all-reduce too early": (lambda p: swap(p, 0, "SYNC@7d", "F0@0d"), "differs|before its last backward"),
    "all-reduces in another order": (lambda p: swap(p, 0, "SYNC@7d", "SYNC@4u"), "common order"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_program_is_refused(name: str) -> None:
    break_it, message = FAULTS[name]
    made = program(micro_batches=8)
    check(made)
    with pytest.raises(ProgramError, match=message):
        check(break_it(made))


def test_the_error_shows_the_grid_with_the_step_marked() -> None:
    with pytest.raises(ProgramError) as caught:
        check(swap(program(), 0, "F0@0d", "SEND_F0@1d"))
    assert ">SEND_F0@1d" in caught.value.grid
    assert caught.value.grid.count("\n") == 3


def with_row(device: int, change: Callable[[list[Action]], list[Action]]) -> None:
    schedule = generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4))
    orders = list(schedule.orders)
    orders[device] = tuple(change(list(orders[device])))
    check_schedule(replace(schedule, orders=tuple(orders)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row[:-1], "is missing on device 0"),
        (lambda row: [*row, row[0]], "comes twice"),
        (lambda row: [*row, parse_action("F0@1d")], "the stage lies on device 1"),
        (lambda row: [*row, parse_action("F0@0u")], "is in the wrong pipe"),
        (lambda row: [*row, parse_action("F9@0d")], "outside 4 micro-batches and 8 stages"),
        (lambda row: [*row, parse_action("I0@0d")], "a backward is either B, or I and W"),
    ],
)
def test_a_faulty_schedule_is_refused(change: Callable[[list[Action]], list[Action]], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        with_row(0, change)


def test_too_many_activations_are_refused() -> None:
    schedule = generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4))
    with pytest.raises(ProgramError, match="makes it 8 chunks of activations, the cap is 7"):
        check_schedule(replace(schedule, cap=7))


def test_a_deadlock_is_shown_with_every_waiting_device() -> None:
    schedule = generate(ScheduleSpec(method="dapple", depth=2, micro_batches=2))
    crossed = replace(
        schedule,
        orders=(
            tuple(map(parse_action, ("F0@0d", "B0@0d", "F1@0d", "B1@0d"))),
            tuple(map(parse_action, ("F0@1d", "F1@1d", "B0@1d", "B1@1d"))),
        ),
    )
    with pytest.raises(ProgramError, match="deadlock") as caught:
        lower(crossed, sync="none")
    assert ">B0@0d" in caught.value.grid
    assert ">F1@1d" in caught.value.grid
