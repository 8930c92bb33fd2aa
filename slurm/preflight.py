"""One look at an allocation before it is used: every rank's device, its rate, the links between.

Run by srun, one task per rank: ``python -m slurm.preflight FOLDER BACKEND``. Rank 0 writes
``FOLDER/preflight.json``.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bitpipe.checkout import ROOT
from experiments.records.store import write_json
from slurm.rendezvous import Task, meet

THRESHOLDS = ROOT / "conf" / "preflight.yaml"
FILE = "preflight.json"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured: matrix edge, message bytes, repetitions."""

    edge: int
    bytes: int
    repeats: int


SIZES = {
    "cuda": Sizes(edge=8192, bytes=256 << 20, repeats=5),
    "cpu": Sizes(edge=256, bytes=1 << 20, repeats=3),
}


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What an allocation can do. Rates in FLOP/s and bytes/s, latencies in seconds, None where not there.

    Attributes:
        ranks: per rank: host, device, matmul_flops.
        links: p2p_intra, p2p_inter, all_reduce_intra, all_reduce_inter: bandwidth and latency.
        problems: one sentence per rank or link below its threshold, with the node's name.
    """

    ranks: Sequence[Mapping[str, Any]]
    links: Mapping[str, Mapping[str, float] | None]
    problems: Sequence[str] = field(default=())

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def verdict(self) -> str:
        return "passed" if self.passed else "; ".join(self.problems)

    def cluster(self, name: str, *, memory_bytes: float, memory_bandwidth: float) -> dict[str, Any]:
        """A cluster file for the simulator, with what was measured.

        Links that the allocation does not have (one node) take the values of the other kind.
        """
        hosts = [str(rank["host"]) for rank in self.ranks]
        nodes = len(set(hosts))
        links = {}
        for kind in ("p2p", "all_reduce"):
            inside, across = self.links.get(f"{kind}_intra"), self.links.get(f"{kind}_inter")
            links[f"{kind}_intra"] = dict(inside or across or {})
            links[f"{kind}_inter"] = dict(across or inside or {})
        return {
            "name": name,
            "nodes": nodes,
            "devices_per_node": len(hosts) // nodes,
            "nics_per_node": 1,
            "device": {
                "name": str(self.ranks[0]["device"]),
                "peak_flops": statistics.median(float(rank["matmul_flops"]) for rank in self.ranks),
                "memory_bytes": memory_bytes,
                "memory_bandwidth": memory_bandwidth,
            },
            **links,
            "sources": {
                "device.memory_bytes": "assumed, correct it by hand",
                "device.memory_bandwidth": "assumed, correct it by hand",
                "device.peak_flops": "measured by preflight (matmul)",
                "links": "measured by preflight",
            },
        }


def thresholds(path: Path = THRESHOLDS) -> dict[str, float]:
    """Smallest acceptable values, as fractions of the allocation's median or in absolute units."""
    values: dict[str, float] = yaml.safe_load(path.read_text())
    return values


def judge(
    ranks: Sequence[Mapping[str, Any]],
    links: Mapping[str, Mapping[str, float] | None],
    limits: Mapping[str, float],
    backend: str,
) -> list[str]:
    """One sentence per device or link that is too slow, or missing; names the node. Pure."""
    problems = []
    median = statistics.median(float(rank["matmul_flops"]) for rank in ranks)
    for number, rank in enumerate(ranks):
        rate = float(rank["matmul_flops"])
        if rate < limits["matmul_fraction"] * median:
            problems.append(
                f"node {rank['host']}: rank {number} multiplies matrices at {rate:.3g} FLOP/s, "
                f"the median is {median:.3g}"
            )
        if backend == "cuda" and rank["device"] == "cpu":
            problems.append(f"node {rank['host']}: rank {number} sees no CUDA device")
    for name, link in links.items():
        least = limits.get(f"{name}_bytes_per_s_{backend}", 0.0)
        if link is not None and link["bandwidth"] < least:
            problems.append(f"{name}: {link['bandwidth']:.3g} bytes/s, expected at least {least:.3g}")
    return problems


def main(arguments: Sequence[str]) -> int:
    """One rank of the preflight step."""
    folder, backend = Path(arguments[0]), arguments[1]
    import torch
    import torch.distributed as dist

    task = Task.here()
    torch.set_num_threads(1)
    cuda = backend == "cuda"
    if cuda and not torch.cuda.is_available():
        if task.rank == 0:
            write_json(folder / FILE, asdict(_no_cuda(task)))
        return 0
    if cuda:
        torch.cuda.set_device(task.local % torch.cuda.device_count())
    device = torch.device("cuda") if cuda else torch.device("cpu")
    sizes = SIZES["cuda" if cuda else "cpu"]
    meet(task, folder / f"store-{os.environ['SLURM_STEP_ID']}", backend="nccl" if cuda else "gloo")
    mine = {
        "host": task.host,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "matmul_flops": _matmul(device, sizes),
    }
    every: list[Any] = [None] * task.size
    dist.all_gather_object(every, mine)
    links = _links(task, [rank["host"] for rank in every], device, sizes)
    if task.rank == 0:
        problems = judge(every, links, thresholds(), backend)
        write_json(folder / FILE, asdict(Preflight(ranks=every, links=links, problems=problems)))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _no_cuda(task: Task) -> Preflight:
    problem = f"node {task.host}: backend=cuda, but this job sees no CUDA device (try backend=virtual)"
    return Preflight(
        ranks=[{"host": task.host, "device": "cpu", "matmul_flops": 0.0}], links={}, problems=[problem]
    )


def _matmul(device: Any, sizes: Sizes) -> float:
    """FLOP/s of one dense product, the best of a few; on a CPU by processor time, so that a rank that
    has to wait for its core does not look like a slow one."""
    import torch

    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    a = torch.randn(sizes.edge, sizes.edge, device=device, dtype=kind)
    best = float("inf")
    for _ in range(sizes.repeats + 1):
        best = min(best, _timed(lambda: a @ a, device, time.thread_time if device.type == "cpu" else None))
    return 2 * sizes.edge**3 / best


def _links(task: Task, hosts: Sequence[str], device: Any, sizes: Sizes) -> dict[str, dict[str, float] | None]:
    """Every kind of link that the allocation has; all ranks call this in step."""
    first = hosts[0]
    near = next((r for r in range(1, task.size) if hosts[r] == first), None)
    far = next((r for r in range(1, task.size) if hosts[r] != first), None)
    inside = [r for r in range(task.size) if hosts[r] == first]
    return {
        "p2p_intra": _p2p(task, near, device, sizes),
        "p2p_inter": _p2p(task, far, device, sizes),
        "all_reduce_intra": _all_reduce(task, inside, device, sizes) if len(inside) > 1 else None,
        "all_reduce_inter": _all_reduce(task, list(range(task.size)), device, sizes)
        if far is not None
        else None,
    }


def _p2p(task: Task, peer: int | None, device: Any, sizes: Sizes) -> dict[str, float] | None:
    """There and back between rank 0 and ``peer``; None if there is no such peer."""
    if peer is None:
        return None
    import torch
    import torch.distributed as dist

    found = {}
    for name, length in (("latency", 8), ("bandwidth", sizes.bytes)):
        buffer = torch.zeros(length, dtype=torch.uint8, device=device)

        def there_and_back(buffer: Any = buffer) -> None:
            if task.rank == 0:
                dist.send(buffer, peer)
                dist.recv(buffer, peer)
            elif task.rank == peer:
                dist.recv(buffer, 0)
                dist.send(buffer, 0)

        seconds = min(_timed(there_and_back, device) for _ in range(sizes.repeats)) / 2
        found[name] = seconds if name == "latency" else length / max(seconds, 1e-9)
    return _of_rank_0(found)


def _all_reduce(task: Task, members: list[int], device: Any, sizes: Sizes) -> dict[str, float]:
    """Bus bandwidth, 2(n−1)/n · bytes per second, and the time of a tiny one."""
    import torch
    import torch.distributed as dist

    group = dist.new_group(members)
    found = {}
    for name, length in (("latency", 2), ("bandwidth", sizes.bytes // 4)):
        buffer = torch.zeros(length, device=device)

        def reduce(buffer: Any = buffer) -> None:
            if task.rank in members:
                dist.all_reduce(buffer, group=group)

        seconds = min(_timed(reduce, device) for _ in range(sizes.repeats))
        n = len(members)
        moved = 2 * (n - 1) / n * 4 * length
        found[name] = seconds if name == "latency" else moved / max(seconds, 1e-9)
    return _of_rank_0(found)


def _of_rank_0(found: dict[str, float]) -> dict[str, float]:
    import torch.distributed as dist

    shared: list[Any] = [found]
    dist.broadcast_object_list(shared, src=0)
    result: dict[str, float] = shared[0]
    return result


def _timed(work: Any, device: Any, clock: Callable[[], float] | None = None) -> float:
    """Seconds of ``work`` on ``clock``, the wall's unless told otherwise."""
    import torch

    clock = clock or time.perf_counter
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - begin


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
