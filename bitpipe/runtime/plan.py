"""What one rank does, worked out before it starts: messages, tags, groups, release points.

No torch here. A :class:`Plan` is the same on every run, so the interpreter only follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bitpipe.cluster import RankLayout
from bitpipe.errors import InputError
from bitpipe.schedule.action import COLLECTIVES, Action, Kind
from bitpipe.schedule.effects import MOVES, RECEIVES, SENDS, WAITS, Item
from bitpipe.schedule.flow import recomputed_chunks
from bitpipe.schedule.program import Program

Message = tuple[Item, int, int, int]
"""(what, micro-batch, stage, pipe) of a tensor that ranks exchange."""
Group = tuple[Kind, int]
"""Kind and stage of a collective: (SYNC, 3), (GATHER, 3), (TIE, 0), …"""


def message_of(action: Action) -> Message | None:
    """The message that a RECV, WAIT or SEND is about."""
    item = MOVES.get(action.kind)
    return None if item is None else (item, action.micro_batch, action.stage, action.pipe)


def group_of(action: Action) -> Group:
    """Which collective an action starts; a model has one tied embedding."""
    return action.kind, action.stage


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A program on a layout, as one rank sees it.

    Attributes:
        program: what every pipeline group runs.
        layout: which rank runs which device of which replica.
        rank: this one.
    """

    program: Program
    layout: RankLayout
    rank: int

    def __post_init__(self) -> None:
        if self.layout.depth != self.program.schedule.depth:
            raise InputError(
                "layout.depth", self.layout.depth, f"the program has {self.program.schedule.depth} devices"
            )

    @property
    def replica(self) -> int:
        return self.layout.places[self.rank][0]

    @property
    def device(self) -> int:
        return self.layout.places[self.rank][1]

    @property
    def stages(self) -> int:
        return self.program.schedule.placement.stages

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The device's row without peers and slots."""
        return tuple(instruction.action for instruction in self.program.rows[self.device])

    @cached_property
    def recomputed(self) -> frozenset[tuple[int, int]]:
        """(micro-batch, stage) of forwards that keep nothing."""
        return recomputed_chunks(self.program.schedule)

    @cached_property
    def timed(self) -> tuple[int, ...]:
        """Positions of the actions whose duration counts: compute and STEP."""
        return tuple(
            position
            for position, action in enumerate(self.actions)
            if action.is_compute or action.kind is Kind.STEP
        )

    def peer(self, device: int) -> int:
        """The rank of another device of the same replica."""
        return self.layout.rank(self.replica, device)

    def tag(self, message: Message) -> int:
        """A number that no other message of an iteration has, on any rank."""
        item, micro_batch, stage, _ = message
        return (item * self.stages + stage) * self.program.schedule.micro_batches + micro_batch

    @cached_property
    def sample_index(self) -> Mapping[int, int]:
        """Micro-batch of the schedule → global micro-batch w·N + j; empty ones are left out."""
        schedule = self.program.schedule
        full = [m for m in range(schedule.micro_batches) if m not in schedule.empty]
        return {m: self.replica * len(full) + j for j, m in enumerate(full)}

    def holders(self, group: Group) -> tuple[int, ...]:
        """Ranks that hold the stage, in both directions and all replicas; for TIE, the embedding."""
        kind, stage = group
        ends = (0, -1) if kind is Kind.TIE else (stage,)
        devices = self.program.schedule.placement.replicas(*ends)
        return tuple(sorted(self.layout.rank(w, d) for d in devices for w in range(self.layout.width)))

    @cached_property
    def groups(self) -> Mapping[Group, tuple[int, ...]]:
        """Members of every all-reduce of the program with more than one, in one order for all."""
        width, rank = self.layout.width, self.layout.rank
        members = {
            group: tuple(sorted(rank(w, device) for device in devices for w in range(width)))
            for group, devices in sorted(self.program.groups.items())
        }
        return {group: ranks for group, ranks in members.items() if len(ranks) > 1}

    @cached_property
    def ties(self) -> bool:
        """Whether the embedding is shared between devices and has an all-reduce of its own."""
        return any(i.action.kind is Kind.TIE for row in self.program.rows for i in row)

    @cached_property
    def issues(self) -> Mapping[int, Group]:
        """Positions of this rank's SYNC and TIE that start an all-reduce.

        A device that holds a stage in both pipes issues it once, at the later of the two.
        """
        return issues_of(self.actions, self.groups)


def issues_of(actions: Sequence[Action], groups: Mapping[Group, tuple[int, ...]]) -> dict[int, Group]:
    """Positions in a row of the SYNC and TIE that start an all-reduce: a group's last ones."""
    last: dict[Group, int] = {}
    for position, action in enumerate(actions):
        if action.kind in COLLECTIVES and group_of(action) in groups:
            last[group_of(action)] = position
    return {position: group for group, position in sorted(last.items(), key=lambda item: item[1])}


def release_points(program: Program) -> tuple[dict[int, list[int]], ...]:
    """When a sender may wait for its sends without ever waiting for its receiver.

    A send is complete once its receive has been posted. ``result[device][position]`` lists the
    sends (positions in the row) whose receives must have been posted by the time the WAIT or
    SEND at ``position`` has returned, because a chain of messages says so. Sends that no chain
    covers are left to the end of the iteration.

    Worked out with vector clocks (Mattern 1989): every message carries how far its sender
    knows every device to be.
    """
    rows = program.rows
    posted = {
        message_of(instruction.action): (device, position)
        for device, row in enumerate(rows)
        for position, instruction in enumerate(row)
        if instruction.action.kind in RECEIVES
    }
    known = [[0] * len(rows) for _ in rows]
    carried: dict[Message | None, list[int]] = {}
    open_sends: list[list[tuple[int, int, int]]] = [[] for _ in rows]  # (receiver, its RECV, SEND)
    releases: tuple[dict[int, list[int]], ...] = tuple({} for _ in rows)
    position = [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for device, row in enumerate(rows):
            clock, pending = known[device], open_sends[device]
            while position[device] < len(row):
                at = position[device]
                action = row[at].action
                message = message_of(action)
                if action.kind in WAITS:
                    if message not in carried:
                        break
                    other = carried[message]
                    known[device] = clock = [max(pair) for pair in zip(clock, other, strict=True)]
                    done = [send for peer, receive, send in pending if clock[peer] > receive]
                    if done:
                        releases[device][at] = done
                        pending[:] = [entry for entry in pending if clock[entry[0]] <= entry[1]]
                elif action.kind in SENDS:
                    carried[message] = [*clock[:device], at, *clock[device + 1 :]]
                    receiver, receive = posted[message]
                    pending.append((receiver, receive, at))
                position[device] = at + 1
                clock[device] = at + 1
                moved = True
    return releases
