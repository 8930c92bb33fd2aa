"""NCCL's order, proved on all ranks' streams before anything starts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bitpipe.cluster import LAYOUTS, RankLayout
from bitpipe.runtime.transport.channels import channels_of, check_channels, streams
from bitpipe.schedule import METHODS, Instruction, Kind, Program, ProgramError, ScheduleSpec, generate, lower

TWO_NODES = 16  # devices per node, for D=16 W=2


def unordered_pairs(source: int, target: int) -> tuple[int, int]:
    """One channel for both directions between two ranks, as one process group of two would have."""
    return min(source, target), max(source, target)


def program_of(method: str, depth: int, count: int, *, width: int, sync: str = "eager") -> Program:
    spec = ScheduleSpec(method=method, depth=depth, micro_batches=count)
    return lower(generate(spec), sync=sync, width=width, tied=True)


def layout_of(depth: int, width: int, name: str = "replica_aware") -> RankLayout:
    return RankLayout(name=name, width=width, depth=depth, devices_per_node=TWO_NODES)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_at_depth_16_on_two_nodes(method: str) -> None:
    for count, sync in ((16, "late"), (32, "eager")):
        program = program_of(method, 16, METHODS[method].nearest(16, count), width=2, sync=sync)
        for name in LAYOUTS:
            layout = layout_of(16, 2, name)
            assert layout.nodes == 2
            check_channels(program, layout)


@pytest.mark.parametrize("method", ["dapple", "1f1b_int", "chimera", "bitpipe"])
def test_one_communicator_for_both_directions_of_a_pair_would_fail(method: str) -> None:
    program = program_of(method, 8, 16, width=1)
    with pytest.raises(ProgramError):
        check_channels(program, layout_of(8, 1), unordered_pairs)


def swapped(program: Program) -> Program:
    """Two receives of one channel in the wrong order: by consumer instead of by sender."""
    for device, row in enumerate(program.rows):
        posts = [
            (at, instruction)
            for at, instruction in enumerate(row)
            if instruction.action.kind in (Kind.RECV_F, Kind.RECV_B)
        ]
        for (at, first), (later, second) in itertools.pairwise(posts):
            if first.peer == second.peer:
                changed: list[Instruction] = list(row)
                changed[at], changed[later] = second, first
                rows = (*program.rows[:device], tuple(changed), *program.rows[device + 1 :])
                return replace(program, rows=rows)
    raise AssertionError("no channel with two receives")


def test_receives_in_another_order_than_the_senders_get_the_wrong_tensor() -> None:
    program = swapped(program_of("bitpipe", 4, 8, width=1))
    with pytest.raises(ProgramError, match="meets"):
        check_channels(program, layout_of(4, 1))


def test_all_reduces_in_opposite_orders_deadlock() -> None:
    """Devices 0 and 3 of Chimera hold the same two stages; one of them issues them the other way."""
    program = program_of("chimera", 4, 4, width=1, sync="late")
    row = list(program.rows[0])
    first, second = (at for at, i in enumerate(row) if i.action.kind is Kind.SYNC)
    row[first], row[second] = row[second], row[first]
    with pytest.raises(ProgramError, match="deadlock on streams: rank"):
        check_channels(replace(program, rows=(tuple(row), *program.rows[1:])), layout_of(4, 1))


def test_a_rank_has_a_stream_per_neighbour_and_direction() -> None:
    program, layout = program_of("dapple", 4, 4, width=1), layout_of(4, 1, "sequential")
    assert channels_of(program, layout) == ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))
    assert [streams(program, layout, rank) for rank in range(4)] == [2 + 2 + 1, 2 + 4, 2 + 4, 2 + 2 + 1]
