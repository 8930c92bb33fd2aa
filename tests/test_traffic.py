"""Bytes by kind and link class."""

from __future__ import annotations

import pytest

from bitpipe.cluster import LinkClass, RankLayout
from bitpipe.schedule import Kind, ScheduleSpec, generate, lower
from bitpipe.traffic import Collective, traffic

PROGRAM = lower(generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4)), sync="none")


@pytest.mark.parametrize(
    ("members", "intra", "inter"),
    [((0, 1, 2, 3), 4, 0), ((0, 1, 4, 5), 2, 2), ((0, 4), 0, 2), ((0, 1, 2, 4), 2, 2), ((0, 4, 8), 0, 3)],
)
def test_a_ring_crosses_nodes_once_for_each_of_them(members: tuple[int, ...], intra: int, inter: int) -> None:
    """n hops carry 2(n−1)/n times the buffer each, as many between nodes as there are nodes."""
    layout = RankLayout(name="sequential", width=3, depth=4, devices_per_node=4)
    found = traffic(PROGRAM, layout, lambda _: 0.0, [Collective(Kind.SYNC, members, 120.0)])
    sent = {t.link: t.bytes for t in found if t.kind == "gradient_sync"}
    hop = 2 * (len(members) - 1) / len(members) * 120
    wanted = {LinkClass.INTRA: intra * hop, LinkClass.INTER: inter * hop}
    assert sent == pytest.approx({link: size for link, size in wanted.items() if size})
    assert sum(sent.values()) == pytest.approx(2 * (len(members) - 1) * 120)
