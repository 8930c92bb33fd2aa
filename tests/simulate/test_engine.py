"""The engine on programs small enough to work out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.errors import InputError
from bitpipe.schedule.action import Action, parse_action
from bitpipe.schedule.costs import ListedCosts
from bitpipe.schedule.placement import sequential
from bitpipe.schedule.program import Instruction, Program
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.timeline import Timeline
from bitpipe.simulate.engine import simulate, trace


def links(width: int = 1, depth: int = 2, per_node: int = 8, layout: str = "sequential") -> Links:
    """Inside a node 10 B/s and 1 s, between nodes 1 B/s and 2 s; all-reduce 4 B/s and 1 s, 1 B/s and 2 s."""
    return Links(
        layout=RankLayout(name=layout, width=width, depth=depth, devices_per_node=per_node),
        p2p_intra=Link(bandwidth=10, latency=1),
        p2p_inter=Link(bandwidth=1, latency=2),
        all_reduce_intra=Link(bandwidth=4, latency=1),
        all_reduce_inter=Link(bandwidth=1, latency=2),
    )


def program(*rows: str) -> Program:
    """Rows of actions; SEND and WAIT of stage s go between the devices of stages s−1, s, s+1."""
    placement = sequential(len(rows))
    made = []
    for device, row in enumerate(rows):
        instructions = []
        for text in row.split():
            action = parse_action(text)
            peer = -1
            if action.kind.value.startswith("SEND"):
                peer = action.stage
            elif action.kind.value[:4] in ("WAIT", "RECV"):
                peer = device - 1 if action.kind.value.endswith("F") else device + 1
            instructions.append(Instruction(action, peer))
        made.append(tuple(instructions))
    schedule = Schedule(method="hand", placement=placement, pipes=(0, 0), orders=tuple(() for _ in rows))
    return Program(schedule=schedule, rows=tuple(made), slots=(1,) * len(rows), sync_order=(0, 1))


ONE = program(
    "F0@0d SEND_F0@1d RECV_B0@0d WAIT_B0@0d B0@0d SYNC@0d STEP",
    "RECV_F0@1d WAIT_F0@1d F0@1d B0@1d SEND_B0@0d SYNC@1d STEP",
)
LENGTH = {"F": 1.0, "B": 2.0, "STEP": 0.5}


@dataclass(frozen=True)
class ByKind:
    """Costs by kind alone, every message and buffer of one size."""

    bytes: float = 20.0

    def seconds(self, rank: int, action: Action) -> float:
        return LENGTH[action.kind.value]

    def size(self, action: Action) -> float:
        return self.bytes


def run(made: Program, over: Links, size: float = 20.0) -> Timeline:
    return simulate(made, ByKind(size), over)


def span(timeline: Timeline, rank: int, text: str) -> tuple[float, float]:
    found = [(e.start, e.end) for e in timeline.events if e.device == rank and str(e.action) == text]
    assert len(found) == 1, text
    return found[0]


def test_a_message_leaves_after_its_producer_and_arrives_a_latency_after_it_has_left() -> None:
    timeline = run(ONE, links())
    assert span(timeline, 0, "SEND_F0@1d") == (1, 1 + 20 / 10 + 1)
    assert span(timeline, 1, "F0@1d") == (4, 5)
    assert span(timeline, 0, "B0@0d") == (10, 12)


def test_a_group_of_one_rank_takes_no_time() -> None:
    assert run(ONE, links()).makespan == 12.5


def test_an_all_reduce_waits_for_every_member_and_its_step_for_it() -> None:
    timeline = run(ONE, links(width=2))
    # ring over two: 2 · 1/2 · 20 B / 4 B/s + 1 s
    assert span(timeline, 0, "SYNC@0d") == (12, 18)
    assert span(timeline, 2, "STEP") == (18, 18.5)


def test_an_all_reduce_waits_until_its_port_has_drained_earlier_messages() -> None:
    timeline = run(ONE, links(width=2))
    # SEND_B0@0d was issued at 7 and left completely at 9: only then SYNC@1d of rank 1 starts
    assert span(timeline, 1, "SYNC@1d") == (7, 15)


def test_messages_of_one_port_queue_and_those_of_two_do_not() -> None:
    both = program(
        "F0@0d SEND_F0@1d F1@0d SEND_F1@1d",
        "WAIT_F0@1d F0@1d WAIT_F1@1d F1@1d",
    )
    timeline = run(both, links(), size=50.0)
    assert span(timeline, 0, "SEND_F0@1d") == (1, 7)
    assert span(timeline, 0, "SEND_F1@1d") == (2, 12)


def test_replicas_pay_for_the_links_that_their_layout_gives_them() -> None:
    apart = links(width=2, per_node=2, layout="replica_aware")
    # ranks are (replica, device) 00 01 10 11: every pipeline lies in a node, every group across
    assert apart.layout.places == ((0, 0), (0, 1), (1, 0), (1, 1))
    timeline = run(ONE, apart)
    assert span(timeline, 0, "SYNC@0d") == (12, 12 + 20 / 1 + 2)


def test_alike_replicas_give_the_same_timeline_as_one_by_one() -> None:
    over = links(width=3, per_node=4)
    for iterations in (1, 3):
        together = trace(ONE, ByKind(), over, iterations=iterations, barrier=False, alike=True)
        apart = trace(ONE, ByKind(), over, iterations=iterations, barrier=False)
        assert together.timeline == apart.timeline
        assert together.ends == apart.ends


def test_a_mapping_of_measured_durations_is_looked_up_by_rank_and_action() -> None:
    seconds = {
        (rank, parse_action(text)): value
        for rank, texts in enumerate([("F0@0d", "B0@0d"), ("F0@1d", "B0@1d")])
        for text, value in (*((t, 1.0 + rank) for t in texts), ("STEP", 0.25))
    }
    listed = ListedCosts(seconds, lambda _: 0.0)
    assert simulate(ONE, listed, links()).makespan == 1 + 1 + 2 + 2 + 1 + 1 + 0.25
    del seconds[1, parse_action("B0@1d")]
    with pytest.raises(InputError, match=r"\(1, B0@1d\)"):
        simulate(ONE, listed, links())


def test_behind_a_barrier_every_iteration_takes_the_same() -> None:
    found = trace(ONE, ByKind(), links(width=2), iterations=3)
    alone = trace(ONE, ByKind(), links(width=2))
    assert alone.ends == (alone.period,) == (alone.makespan,)
    assert found.ends == (alone.makespan, 2 * alone.makespan, 3 * alone.makespan)
    assert found.period == alone.makespan
    assert found.timeline.span == alone.timeline.span
    shifted = [event._replace(start=event.start - 2 * alone.makespan) for event in found.timeline.events]
    assert [event.start for event in shifted] == [event.start for event in alone.timeline.events]


def test_without_a_barrier_every_device_goes_on_after_its_own_step() -> None:
    """Device 0 is done at 1.5, device 1 at 5.5: it then has the next message, and never waits again."""
    made = program("F0@0d SEND_F0@1d STEP", "WAIT_F0@1d F0@1d B0@1d STEP")
    found = trace(made, ByKind(0.0), links(), iterations=3, barrier=False)
    assert span(found.timeline, 0, "F0@0d") == (3, 4)
    assert found.ends == (5.5, 9, 12.5)
    assert found.period == trace(made, ByKind(0.0), links()).timeline.span == 3.5
    assert trace(made, ByKind(0.0), links(), iterations=3).period == 5.5
    with pytest.raises(InputError, match="iterations=0"):
        trace(made, ByKind(), links(), iterations=0)


def test_a_port_that_is_still_busy_delays_the_next_iteration() -> None:
    """Device 0 computes 1.5 per iteration, and its message occupies the port for 5."""
    sending = program("F0@0d SEND_F0@1d STEP", "WAIT_F0@1d STEP")
    found = trace(sending, ByKind(50.0), links(), iterations=3, barrier=False)
    assert span(found.timeline, 0, "SEND_F0@1d") == (1.5 + 1.5 + 1, 1 + 3 * 5 + 1)
    assert found.period == 5


def test_a_program_that_waits_for_ever_is_named_with_its_action() -> None:
    stuck = program("WAIT_B0@0d B0@0d", "F0@1d")
    with pytest.raises(InputError, match="WAIT_B0@0d"):
        run(stuck, links())


def test_groups_in_opposite_orders_are_refused() -> None:
    crossed = program("SYNC@0d SYNC@1d STEP", "SYNC@1d SYNC@0d STEP")
    with pytest.raises(InputError, match="deadlock"):
        run(crossed, links())


def test_the_layout_must_have_the_depth_of_the_program() -> None:
    with pytest.raises(InputError, match=r"layout\.depth=4"):
        run(ONE, links(depth=4))
