"""Judging an allocation: thresholds, the bad node's name, and a cluster file for the simulator."""

from __future__ import annotations

import itertools
import time

import pytest
import torch

from bitpipe.cluster import Cluster
from slurm.preflight import Preflight, Sizes, _matmul, judge, thresholds


def ranks(*rates: float) -> list[dict[str, object]]:
    return [{"host": f"n{k // 2}", "device": "GPU", "matmul_flops": rate} for k, rate in enumerate(rates)]


FAST = {"bandwidth": 1e11, "latency": 1e-5}


def test_a_slow_rank_is_named_with_its_node() -> None:
    problems = judge(ranks(9e14, 9e14, 9e14, 1e14), {"p2p_intra": FAST}, thresholds(), "cuda")
    assert problems == ["node n1: rank 3 multiplies matrices at 1e+14 FLOP/s, the median is 9e+14"]


def test_a_slow_link_is_named() -> None:
    links = {"p2p_intra": FAST, "p2p_inter": {"bandwidth": 1e8, "latency": 1e-5}, "all_reduce_inter": None}
    problems = judge(ranks(1e14, 1e14), links, thresholds(), "cuda")
    assert problems == ["p2p_inter: 1e+08 bytes/s, expected at least 1e+09"]


def test_a_cpu_is_no_cuda_device() -> None:
    (problem,) = judge([{"host": "n0", "device": "cpu", "matmul_flops": 1e9}], {}, thresholds(), "cuda")
    assert "node n0: rank 0 sees no CUDA device" in problem


def test_what_was_measured_is_a_cluster_file() -> None:
    links = {"p2p_intra": FAST, "p2p_inter": None, "all_reduce_intra": FAST, "all_reduce_inter": None}
    found = Preflight(ranks=ranks(1e14, 3e14, 2e14, 2e14), links=links)
    assert found.passed
    cluster = Cluster.from_mapping(found.cluster("here", memory_bytes=8e10, memory_bandwidth=2e12))
    assert (cluster.nodes, cluster.devices_per_node, cluster.device.peak_flops) == (2, 2, 2e14)
    assert cluster.p2p_inter.bandwidth == 1e11


def test_a_rank_that_waits_for_its_core_is_not_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks on one busy core differ by a lot on the wall's clock, and by little in processor time."""
    seconds = itertools.count(1.0, 2.0)
    monkeypatch.setattr(time, "perf_counter", lambda: 1e6 * next(seconds))
    assert _matmul(torch.device("cpu"), Sizes(edge=64, bytes=64, repeats=3)) > 1e5
