"""What one iteration puts on the links: bytes by kind and link class (C20).

Counted from the program and the layout alone, so it is the same for a prediction and for a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from bitpipe.cluster import LinkClass, RankLayout
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.effects import COLLECTS, SENDS
from bitpipe.schedule.program import Program

NAMES = {
    Kind.SEND_F: "activation",
    Kind.SEND_B: "activation_gradient",
    Kind.SYNC: "gradient_sync",
    Kind.TIE: "embedding_sync",
    Kind.SCATTER: "gradient_scatter",
    Kind.GATHER: "weight_gather",
    Kind.SEND_S: "stash",
    Kind.SEND_X: "weight_stash",
    Kind.SEND_P: "weights",
    Kind.SEND_G: "weight_gradient",
}


class Traffic(NamedTuple):
    """Bytes that all ranks together put on links of one class in one iteration."""

    kind: str
    link: LinkClass
    messages: int
    bytes: float


class Collective(NamedTuple):
    """One all-reduce: SYNC or TIE, the global ranks that take part, bytes of the buffer."""

    kind: Kind
    members: tuple[int, ...]
    bytes: float


def traffic(
    program: Program,
    layout: RankLayout,
    size: Callable[[Action], float],
    collectives: Iterable[Collective],
) -> tuple[Traffic, ...]:
    """Count every message of every replica, and every all-reduce.

    A ring all-reduce of n members moves 2(n−1) times its buffer, the same over each of its n hops.
    Rings go through one node after the other, so as many hops cross nodes as there are nodes, if
    more than one; the mapping of section 1.4.2 keeps all of them inside. An all-reduce counts as one
    message of every class of link that it uses.

    Args:
        program: of one replica.
        layout: which ranks share a node.
        size: bytes of a SEND.
        collectives: the all-reduces of an iteration, each once.
    """

    totals: dict[tuple[str, LinkClass], tuple[int, float]] = {}

    def add(kind: Kind, where: LinkClass, messages: int, total: float) -> None:
        before = totals.get((NAMES[kind], where), (0, 0.0))
        totals[NAMES[kind], where] = before[0] + messages, before[1] + total

    paths: dict[tuple[Kind, int, int], tuple[int, float]] = {}
    for device, row in enumerate(program.rows):
        for action, peer, *_ in row:
            if action.kind in SENDS:
                messages, total = paths.get((action.kind, device, peer), (0, 0.0))
                paths[action.kind, device, peer] = messages + 1, total + size(action)
    for (kind, device, peer), (messages, total) in paths.items():
        for replica in range(layout.width):
            ends = layout.node(layout.rank(replica, device)), layout.node(layout.rank(replica, peer))
            add(kind, LinkClass.INTRA if ends[0] == ends[1] else LinkClass.INTER, messages, total)
    for one in collectives:
        members = len(one.members)
        nodes = len({layout.node(rank) for rank in one.members})
        across = nodes if nodes > 1 else 0
        for where, hops in ((LinkClass.INTRA, members - across), (LinkClass.INTER, across)):
            if members > 1 and hops:
                halves = 2 if COLLECTS[one.kind].op == "all_reduce" else 1
                add(one.kind, where, 1, hops * halves * (members - 1) / members * one.bytes)
    return tuple(Traffic(kind, where, *counted) for (kind, where), counted in totals.items())
