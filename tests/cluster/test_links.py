"""What all-reduces cost: never less than what the NICs of their members allow."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest

from bitpipe.cluster import LAYOUTS, Cluster, Links, RankLayout
from bitpipe.errors import InputError
from bitpipe.simulate import conf

GB = 1e9


def layout(cluster: Cluster, width: int, depth: int, name: str = "sequential") -> RankLayout:
    return RankLayout(name=name, width=width, depth=depth, devices_per_node=cluster.devices_per_node)


def fastest(cluster: Cluster, on_each: int, nodes: int) -> float:
    """Seconds in which the NICs of ``on_each`` ranks per node can move what a ring of 1 GB moves."""
    members, per_node = on_each * nodes, min(on_each, cluster.nics_per_node)
    return 2 * (members - 1) / members * GB / (per_node * cluster.p2p_inter.bandwidth)


@pytest.mark.parametrize("name", conf.names("cluster"))
@pytest.mark.parametrize(("on_each", "nodes"), [*product([1, 2, 3, 4, 8], [2, 3, 4])])
def test_no_all_reduce_is_faster_than_the_nics_of_its_members(name: str, on_each: int, nodes: int) -> None:
    cluster = conf.cluster(name)
    per_node = cluster.devices_per_node
    links = Links.of(cluster, layout(cluster, nodes, per_node))
    members = [node * per_node + device for node in range(nodes) for device in range(on_each)]
    assert links.all_reduce(members, GB) >= fastest(cluster, on_each, nodes)
    # A node with fewer members holds all others up.
    if on_each > 1:
        assert links.all_reduce(members[1:], GB) >= fastest(cluster, on_each - 1, nodes) * 0.9
    inside = links.all_reduce(list(range(on_each)), GB)
    assert inside <= links.all_reduce(members, GB)


def test_four_ranks_on_four_nodes_of_h100_need_30_ms_for_a_gigabyte() -> None:
    cluster = conf.cluster("h100")
    links = Links.of(cluster, layout(cluster, 4, 8))
    assert 0.030 <= links.all_reduce([0, 8, 16, 24], GB) < 0.031
    assert links.all_reduce(list(range(32)), GB) == pytest.approx(2 * 31 / 32 * GB / 172e9, rel=0.02)


def test_ranks_that_share_a_nic_share_its_rate() -> None:
    cluster = replace(conf.cluster("h100"), nics_per_node=4)
    links = Links.of(cluster, layout(cluster, 2, 8))
    assert links.all_reduce([0, 8], GB) == pytest.approx(GB / 25e9, rel=0.01)


def test_one_member_reduces_for_nothing() -> None:
    cluster = conf.cluster("a800")
    assert Links.of(cluster, layout(cluster, 1, 8)).all_reduce([3], GB) == 0


def test_rank_orders_are_permutations_and_differ_as_stated() -> None:
    cluster = conf.cluster("a800")
    orders = {name: layout(cluster, 2, 4, name) for name in LAYOUTS}
    for order in orders.values():
        assert sorted(order.places) == [(w, d) for w in range(2) for d in range(4)]
    assert orders["sequential"].rank(1, 2) == 1 * 4 + 2
    assert orders["megatron"].rank(1, 2) == 2 * 2 + 1
    assert [orders["released"].rank(0, d) // 2 for d in range(4)] == [0, 3, 2, 1]
    assert [orders["replica_aware"].rank(0, d) for d in range(4)] == [0, 4, 5, 1]


@pytest.mark.parametrize("depth", [2, 4, 8, 16, 32])
def test_megatron_keeps_data_parallel_groups_in_a_node_and_the_released_order_sends_most_boundaries_across(
    depth: int,
) -> None:
    cluster = conf.cluster("a800")
    width = 32 // depth
    megatron = layout(cluster, width, depth, "megatron")
    nodes = [{megatron.node(megatron.rank(w, d)) for w in range(width)} for d in range(depth)]
    assert all(len(where) <= max(1, width // 8) for where in nodes)
    if depth == 16:
        one = RankLayout(name="released", width=1, depth=16, devices_per_node=8)
        placed = [one.node(one.rank(0, d)) for d in range(16)]
        assert sum(a != b for a, b in pairwise(placed)) == 14


def test_the_released_order_needs_an_even_depth() -> None:
    with pytest.raises(InputError, match=r"layout=released: needs an even depth, not depth=5 .*4 or 6"):
        layout(conf.cluster("a800"), 1, 5, "released")
