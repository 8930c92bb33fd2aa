"""The clusters that ship as data."""

from __future__ import annotations

import pytest

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from bitpipe.simulate import conf


def leaves(data: dict[str, object], prefix: str = "") -> set[str]:
    found = set()
    for key, value in data.items():
        if key == "sources":
            continue
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key}
    return found


@pytest.mark.parametrize("name", conf.names("cluster"))
def test_every_figure_of_a_cluster_names_its_source(name: str) -> None:
    data = conf.read("cluster", name)
    assert Cluster.from_mapping(data).name == name
    assert leaves(data) == set(data["sources"])
    assert all(isinstance(source, str) and source for source in data["sources"].values())


def test_the_paper_s_cluster_is_as_printed() -> None:
    cluster = conf.cluster("a800")
    assert (cluster.size, cluster.devices_per_node) == (32, 8)
    assert cluster.device.memory_bytes == 80 * 2**30
    assert cluster.p2p_inter.bandwidth == 200e9 / 8


def test_an_unknown_key_is_named_with_those_allowed() -> None:
    with pytest.raises(InputError, match=r"cluster\.nics=8: allowed keys are"):
        Cluster.from_mapping(conf.read("cluster", "a800") | {"nics": 8})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p2p_intra": {"bandwidth": "fast", "latency": 0}}, "p2p_intra.bandwidth=fast: must be a number"),
        ({"p2p_intra": {"bandwidth": 1e9, "latency": None}}, "p2p_intra.latency=None: must be a number"),
        ({"p2p_inter": {"bandwidth": float("nan"), "latency": 0}}, "p2p_inter.bandwidth=nan: must be finite"),
        ({"p2p_inter": {"bandwidth": 0, "latency": 0}}, "cluster.p2p_inter.bandwidth=0: must be positive"),
        ({"device": 3}, "cluster.device=3: expected exactly the keys"),
    ],
)
def test_a_value_that_is_no_quantity_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        Cluster.from_mapping(conf.read("cluster", "a800") | change)
    assert message in str(error.value)
