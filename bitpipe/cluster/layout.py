"""Rank layouts: which global rank, hence which node, runs device d of replica w."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bitpipe.errors import choose

LAYOUTS = ("sequential", "replica_aware")


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """W pipeline groups of D devices, filled node by node.

    ``sequential`` puts device d of replica w at rank w·D + d. ``replica_aware`` (section
    1.4.2) sorts by (min(d, D−1−d), w, d), so that the replicas of a stage, in both directions
    and all W groups, are neighbours.
    """

    name: str
    width: int
    depth: int
    devices_per_node: int

    def __post_init__(self) -> None:
        choose("layout", self.name, LAYOUTS)

    @property
    def size(self) -> int:
        return self.width * self.depth

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """``places[rank]`` is (replica w, device d)."""
        every = [(w, d) for w in range(self.width) for d in range(self.depth)]
        if self.name == "replica_aware":
            every.sort(key=lambda place: (min(place[1], self.depth - 1 - place[1]), place[0], place[1]))
        return tuple(every)

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], int]:
        return {place: rank for rank, place in enumerate(self.places)}

    def rank(self, replica: int, device: int) -> int:
        return self._ranks[replica, device]

    def node(self, rank: int) -> int:
        return rank // self.devices_per_node

    @property
    def nodes(self) -> int:
        """How many nodes the ranks occupy."""
        return -(-self.size // self.devices_per_node)
