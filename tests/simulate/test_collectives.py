"""Reduce-scatter, a step of one's share and all-gather: program, check and simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.schedule import Action, Kind, Program, ProgramError, ScheduleSpec, check, generate, lower
from bitpipe.simulate.engine import trace


class Even:
    """A unit per action, and for STEP; ten bytes for everything that travels."""

    def seconds(self, rank: int, action: Action) -> float:
        return 1.0

    def size(self, action: Action) -> float:
        return 10.0


def links(width: int, depth: int) -> Links:
    return Links(
        layout=RankLayout(name="sequential", width=width, depth=depth, devices_per_node=width * depth),
        p2p_intra=Link(bandwidth=1e9, latency=0),
        p2p_inter=Link(bandwidth=1e9, latency=0),
        all_reduce_intra=Link(bandwidth=10, latency=2),
        all_reduce_inter=Link(bandwidth=10, latency=2),
    )


def program(*, sharded: bool) -> Program:
    schedule = generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4))
    return lower(schedule, sync="eager", width=1, sharded=sharded)


def test_scatters_take_the_place_of_all_reduces_and_gathers_follow_the_step() -> None:
    plain, sharded = program(sharded=False), program(sharded=True)
    check(sharded)
    assert {kind for kind, _ in plain.groups} == {Kind.SYNC}
    assert {kind for kind, _ in sharded.groups} == {Kind.SCATTER, Kind.GATHER}
    for stage in range(8):
        members = plain.groups[Kind.SYNC, stage]
        assert sharded.groups[Kind.SCATTER, stage] == sharded.groups[Kind.GATHER, stage] == members
    for row in sharded.rows:
        kinds = [instruction.action.kind for instruction in row]
        step = kinds.index(Kind.STEP)
        assert set(kinds[step + 1 :]) == {Kind.GATHER}
        assert Kind.GATHER not in kinds[:step]


@pytest.mark.parametrize("lost", ["GATHER@0d", "SCATTER@0d"])
def test_a_missing_half_is_refused(lost: str) -> None:
    whole = program(sharded=True)
    rows = tuple(tuple(i for i in row if str(i.action) != lost) for row in whole.rows)
    with pytest.raises(ProgramError, match=f"{lost} is missing"):
        check(replace(whole, rows=rows))


def test_gradients_are_summed_in_one_way() -> None:
    whole = program(sharded=True)
    swapped = [
        i._replace(action=i.action._replace(kind=Kind.SYNC)) if str(i.action) == "SCATTER@0d" else i
        for i in whole.rows[0]
    ]
    with pytest.raises(ProgramError, match="summed in one way"):
        check(replace(whole, rows=(tuple(swapped), *whole.rows[1:])))


def test_a_scatter_and_a_gather_take_half_of_an_all_reduce_each() -> None:
    found = trace(program(sharded=True), Even(), links(1, 4))
    plain = trace(program(sharded=False), Even(), links(1, 4))
    seconds = {c.action.kind: c.end - c.start for c in (*found.collectives, *plain.collectives)}
    assert seconds[Kind.SYNC] == pytest.approx(2 * 1 / 2 * 10 / 10 + 2)
    assert seconds[Kind.SCATTER] == seconds[Kind.GATHER] == pytest.approx(seconds[Kind.SYNC] / 2)


def test_an_iteration_ends_with_its_last_gather_and_the_next_begins_there() -> None:
    found = trace(program(sharded=True), Even(), links(1, 4))
    gathers = [c for c in found.collectives if c.action.kind is Kind.GATHER]
    assert len(gathers) == 8
    assert found.makespan == max(c.end for c in gathers)
    assert min(c.start for c in gathers) >= min(end for _, end in found.steps)
    twice = trace(program(sharded=True), Even(), links(1, 4), iterations=2)
    assert twice.period == pytest.approx(found.makespan)
    drawn = {str(event.action): event for event in found.timeline.events if event.device == 0}
    assert drawn["GATHER@0d"].start == drawn["STEP"].end
