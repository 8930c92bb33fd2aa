"""Static check of a program on GPU streams with NCCL's channels, over all ranks. No torch here.

NCCL delivers in order, without tags, and a send ends only together with its receive
(rendezvous). The model of a rank:

* one compute stream: the compute actions, in row order. A WAIT lets it wait for a receive, a
  release point (:func:`bitpipe.runtime.plan.release_points`) for sends, STEP for everything;
* one stream per channel, sends at its source and receives at its target, in row order. By default
  every ordered pair of ranks is a channel of its own;
* one stream for all all-reduces of the rank, which is stricter than a stream per group.

What is put on a communication stream waits for all that was put on the compute stream before.
The host never waits. A program that ends in this model cannot deadlock on real streams, as long
as each of them has a work queue of its own: see :func:`streams`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bitpipe.cluster import RankLayout
from bitpipe.runtime.plan import Group, Message, Plan, message_of, release_points
from bitpipe.schedule.action import Kind
from bitpipe.schedule.effects import RECEIVES, SENDS, WAITS
from bitpipe.schedule.errors import ProgramError
from bitpipe.schedule.program import Program

Channel = tuple[int, int]
_REDUCTIONS = -1, -1  # the stream of all-reduces, beside the channels'


def ordered_pairs(source: int, target: int) -> Channel:
    """A channel for every ordered pair of ranks."""
    return source, target


def channels_of(program: Program, layout: RankLayout) -> tuple[Channel, ...]:
    """All ordered pairs of ranks that exchange messages, in the one order for all ranks."""
    pairs = {
        (layout.rank(replica, device), layout.rank(replica, instruction.peer))
        for replica in range(layout.width)
        for device, row in enumerate(program.rows)
        for instruction in row
        if instruction.action.kind in SENDS
    }
    return tuple(sorted(pairs))


def streams(program: Program, layout: RankLayout, rank: int) -> int:
    """CUDA streams that a rank uses: compute, copies, its channels, its all-reduce groups.

    A GPU has 8 work queues by default (CUDA_DEVICE_MAX_CONNECTIONS, at most 32). Streams that
    share a queue can wait for each other where the program does not say so.
    """
    mine = sum(rank in channel for channel in channels_of(program, layout))
    groups = Plan(program=program, layout=layout, rank=rank).groups.values()
    return 2 + mine + len({members for members in groups if rank in members})


class _Op(NamedTuple):
    """An operation on a communication stream; it may begin once compute has passed ``after``."""

    after: int
    sends: bool
    what: Message | Group


class _Rank:
    """One rank's streams: what is queued, and how far each has come."""

    def __init__(
        self,
        plan: Plan,
        releases: dict[int, list[int]],
        channel: Callable[[int, int], Channel],
    ) -> None:
        self.queues: dict[Channel, list[_Op]] = {}
        self.heads: dict[Channel, int] = {}
        self.compute = 0  # actions of the row that compute has passed
        self.needs: list[list[tuple[Channel, int]]] = []  # per action: queues, and how far they must be
        places: dict[int | Message, tuple[Channel, int]] = {}
        for at, instruction in enumerate(plan.program.rows[plan.device]):
            action, need = instruction.action, []
            message = message_of(action)
            if action.kind in RECEIVES or action.kind in SENDS:
                assert message is not None
                peer = plan.peer(instruction.peer)
                sends = action.kind in SENDS
                key = channel(plan.rank, peer) if sends else channel(peer, plan.rank)
                places[at if sends else message] = self._put(key, _Op(at, sends, message))
            elif action.kind in WAITS:
                assert message is not None
                need = [places[message], *(places[send] for send in releases.get(at, ()))]
            elif at in plan.issues:
                self._put(_REDUCTIONS, _Op(at, True, plan.issues[at]))
            elif action.kind is Kind.STEP:
                need = [(key, len(queue)) for key, queue in self.queues.items()]
            self.needs.append(need)

    def _put(self, key: Channel, op: _Op) -> tuple[Channel, int]:
        queue = self.queues.setdefault(key, [])
        self.heads.setdefault(key, 0)
        queue.append(op)
        return key, len(queue)

    def advance(self) -> bool:
        """Let compute go on as far as it can; whether it moved."""
        begun = self.compute
        while self.compute < len(self.needs) and all(
            self.heads[key] >= count for key, count in self.needs[self.compute]
        ):
            self.compute += 1
        return self.compute > begun

    def head(self, key: Channel) -> _Op | None:
        """What a stream would do now, if it may."""
        queue, at = self.queues.get(key, ()), self.heads.get(key, 0)
        return queue[at] if at < len(queue) and queue[at].after <= self.compute else None


def check_channels(
    program: Program,
    layout: RankLayout,
    channel: Callable[[int, int], Channel] = ordered_pairs,
) -> None:
    """Run the streams of all ranks.

    Raises:
        ProgramError: a deadlock, or a receive that would get another message's tensor.
    """
    releases = release_points(program)
    plans = [Plan(program=program, layout=layout, rank=rank) for rank in range(layout.size)]
    ranks = [_Rank(plan, releases[plan.device], channel) for plan in plans]
    pairs = sorted({channel(*pair) for pair in channels_of(program, layout)})
    groups = plans[0].groups
    moved = True
    while moved:
        moved = sum(rank.advance() for rank in ranks) > 0
        for pair in pairs:
            while _transfer(ranks, pair):
                moved = True
        for rank in ranks:
            op = rank.head(_REDUCTIONS)
            if op is None:
                continue
            members = [ranks[member] for member in groups[op.what]]  # type: ignore[index]
            heads = [member.head(_REDUCTIONS) for member in members]
            if all(head is not None and head.what == op.what for head in heads):
                for member in members:
                    member.heads[_REDUCTIONS] += 1
                moved = True
    for number, rank in enumerate(ranks):
        if rank.compute < len(rank.needs):
            action = plans[number].actions[rank.compute]
            raise ProgramError(f"deadlock on streams: rank {number} waits at {action}")


def _transfer(ranks: list[_Rank], pair: Channel) -> bool:
    """Let the two heads of a channel meet; whether they did."""
    first, second = (ranks[rank].head(pair) for rank in pair)
    if first is None or second is None or first.sends == second.sends:
        return False
    if first.what != second.what:
        raise ProgramError(f"ranks {pair[0]} and {pair[1]}: {first.what} meets {second.what}")
    for rank in pair:
        ranks[rank].heads[pair] += 1
    return True
