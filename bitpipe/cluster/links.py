"""What a transfer costs: the link arithmetic that simulator and virtual clocks share.

Only arithmetic is shared. Who waits for whom is worked out twice, independently, by
:mod:`bitpipe.simulate` and by :mod:`bitpipe.runtime`; a test holds them to 0.1 %.

The rules, for both:

* A rank has one egress port per link class. A message leaves when the port is free and its
  producer has finished; it occupies the port for bytes / bandwidth and arrives ``latency``
  after it left completely. Receiving costs the receiver nothing but the wait.
* All-reduces have their own communication stream per rank, in program order. One starts when
  every member has issued it, every member's stream is free, and every member's egress port
  of that link class has drained what was issued before the all-reduce. It takes
  2(n−1)/n · bytes / bandwidth + latency. Later P2P does not wait for it: P2P has priority.
* Ranks of a node that share a NIC get an equal static share of it. An all-reduce between nodes
  has rings through the NICs of all its members: it is as fast as the shares of those on the node
  with the fewest of them, and never faster than the path of the whole node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from bitpipe.cluster.layout import RankLayout
from bitpipe.cluster.topology import Cluster, Link


class LinkClass(StrEnum):
    """Which kind of path joins two ranks."""

    LOCAL = "local"  # same rank: a hand-over, free
    INTRA = "intra"  # same node
    INTER = "inter"  # between nodes


@dataclass(frozen=True, kw_only=True)
class Links:
    """Transfer costs on one layout of one (possibly scaled) cluster.

    Attributes:
        layout: which ranks share a node.
        p2p_intra, p2p_inter: of one rank.
        all_reduce_intra, all_reduce_inter: of all ranks of a node together.
        nic: bytes per second that one rank's share of its node's NICs carries.
    """

    layout: RankLayout
    p2p_intra: Link
    p2p_inter: Link
    all_reduce_intra: Link
    all_reduce_inter: Link
    nic: float = inf

    @classmethod
    def of(cls, cluster: Cluster, layout: RankLayout) -> Links:
        """The links of ``cluster``; between nodes a rank gets its static share of the NICs."""
        nic = cluster.p2p_inter.bandwidth * min(1.0, cluster.nics_per_node / cluster.devices_per_node)
        inter = Link(bandwidth=nic, latency=cluster.p2p_inter.latency)
        return cls(
            layout=layout,
            p2p_intra=cluster.p2p_intra,
            p2p_inter=inter,
            all_reduce_intra=cluster.all_reduce_intra,
            all_reduce_inter=cluster.all_reduce_inter,
            nic=nic,
        )

    def between(self, source: int, target: int) -> LinkClass:
        """The class of the path between two global ranks."""
        if source == target:
            return LinkClass.LOCAL
        same = self.layout.node(source) == self.layout.node(target)
        return LinkClass.INTRA if same else LinkClass.INTER

    def among(self, ranks: Sequence[int]) -> LinkClass:
        """The class of a collective: the worst path among its members."""
        nodes = {self.layout.node(rank) for rank in ranks}
        if len(ranks) < 2:
            return LinkClass.LOCAL
        return LinkClass.INTRA if len(nodes) == 1 else LinkClass.INTER

    def occupancy(self, link: LinkClass, size: float) -> float:
        """Seconds that a message of ``size`` bytes holds the sender's egress port."""
        return 0.0 if link is LinkClass.LOCAL else size / self._p2p(link).bandwidth

    def latency(self, link: LinkClass) -> float:
        """Seconds from leaving completely to arriving."""
        return 0.0 if link is LinkClass.LOCAL else self._p2p(link).latency

    def all_reduce(self, members: Sequence[int], size: float) -> float:
        """Seconds of a ring all-reduce of ``size`` bytes over ``members``, global ranks."""
        return self.collective("all_reduce", members, size)

    def collective(self, op: str, members: Sequence[int], size: float) -> float:
        """Seconds of a ring collective on ``size`` bytes over ``members``, global ranks.

        An all-reduce is a reduce-scatter and an all-gather (Patarasuk and Yuan 2009): each moves
        (n−1)/n of the bytes through every member, and takes half of its latency.
        """
        count = len(members)
        if count < 2:
            return 0.0
        on_node = Counter(self.layout.node(rank) for rank in members)
        if len(on_node) == 1:
            path, bandwidth = self.all_reduce_intra, self.all_reduce_intra.bandwidth
        else:
            path = self.all_reduce_inter
            bandwidth = min(path.bandwidth, self.nic * min(on_node.values()))
        halves = 2 if op == "all_reduce" else 1
        return halves * ((count - 1) / count * size / bandwidth + path.latency / 2)

    def _p2p(self, link: LinkClass) -> Link:
        return self.p2p_intra if link is LinkClass.INTRA else self.p2p_inter
