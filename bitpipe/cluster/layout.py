"""Rank layouts: which global rank, hence which node, runs device d of replica w."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bitpipe.errors import InputError, choose

LAYOUTS = ("sequential", "megatron", "replica_aware", "released")


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """W pipeline groups of D devices, filled node by node.

    ``sequential`` puts device d of replica w at rank w·D + d, ``megatron`` at d·W + w, as
    Megatron-LM does: data-parallel groups are neighbours. ``replica_aware`` (section 1.4.2) sorts
    by (min(d, D−1−d), w, d), so that the replicas of a stage, in both directions and all W groups,
    are neighbours. ``released`` is the order in the authors' published code: block k of W ranks
    runs device k where k is even, and block D−k device k where k is odd; D must be even.

    Raises:
        InputError: an unknown name, or ``released`` with an odd depth.
    """

    name: str
    width: int
    depth: int
    devices_per_node: int

    def __post_init__(self) -> None:
        choose("layout", self.name, LAYOUTS)
        if self.name == "released" and self.depth % 2:
            near = f"nearest: depth={self.depth - 1 or 2} or {self.depth + 1}"
            raise InputError("layout", self.name, f"needs an even depth, not depth={self.depth}", near)

    @property
    def size(self) -> int:
        return self.width * self.depth

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """``places[rank]`` is (replica w, device d)."""
        every = [(w, d) for w in range(self.width) for d in range(self.depth)]
        if self.name != "sequential":
            every.sort(key=self._order)
        return tuple(every)

    def _order(self, place: tuple[int, int]) -> tuple[int, ...]:
        """By what ranks are sorted, but for ``sequential``."""
        w, d = place
        if self.name == "replica_aware":
            return min(d, self.depth - 1 - d), w, d
        block = self.depth - d if self.name == "released" and d % 2 else d
        return block, w

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
