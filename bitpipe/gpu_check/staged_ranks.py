"""Four ranks that share a device, through the staged transport: are their gradients one process's?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.gpu_check.tokens import RandomTokens
from bitpipe.job import Job
from bitpipe.models import ModelConfig, partition
from bitpipe.models.memory import DTYPES
from bitpipe.models.transformer import Chunk, build_chunk
from bitpipe.runtime.block import prepare
from bitpipe.runtime.device import Device
from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.run import Run
from bitpipe.runtime.target import Target
from bitpipe.schedule import ScheduleSpec

MODEL = ModelConfig(
    name="gpt_small", family="gpt", layers=8, heads=4, hidden=256, sequence=128, vocabulary=1024
)
BOUND = 1e-9
"""Largest difference of a float64 gradient, relative to the largest gradient."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far apart they are.

    Attributes:
        ranks: how many shared the device.
        difference: largest difference of any gradient, relative to the largest gradient.
        loss_difference: of the mean loss, relative.
    """

    ranks: int
    difference: float
    loss_difference: float

    @property
    def holds(self) -> bool:
        return max(self.difference, self.loss_difference) <= BOUND


def job_of(model: ModelConfig = MODEL) -> Job:
    """BitPipe with D=4 and N=8, in float64."""
    return Job(
        schedule=ScheduleSpec(method="bitpipe", depth=4, micro_batches=8),
        width=1,
        micro_batch_size=2,
        sync="eager",
        layout="sequential",
        model=model,
        precision="fp64",
        iterations=1,
        measured=1,
    )


def free_links() -> Links:
    """Transfers that cost nothing, between ranks on one node."""
    layout = RankLayout(name="sequential", width=1, depth=4, devices_per_node=4)
    free = Link(bandwidth=float("inf"), latency=0.0)
    return Links(layout=layout, p2p_intra=free, p2p_inter=free, all_reduce_intra=free, all_reduce_inter=free)


def compare(device: Device, model: ModelConfig = MODEL) -> Agreement:
    """Train one step on four ranks and on one process, both on this kind of device."""
    job = job_of(model)
    target = Target(device=device.place.type, transport="staged")
    (run,) = prepare([job], clock="wall", links=[free_links()], data=RandomTokens(), target=target)
    with Pool(job.ranks, watchdog=60.0) as pool:
        ranks = pool.call(gradients_on_rank, run, limit=100.0)
    loss, wanted = _one_process(job, device)
    largest = max(gradient.abs().max().item() for gradient in wanted.values())
    seen: set[str] = set()
    worst = 0.0
    for _, mine in ranks:
        seen |= mine.keys()
        worst = max(worst, *((mine[name] - wanted[name]).abs().max().item() for name in mine))
    if seen != wanted.keys():
        raise RuntimeError(f"no rank has a gradient of {', '.join(sorted(wanted.keys() - seen))}")
    losses = max(abs(found - loss) for found, _ in ranks)
    return Agreement(ranks=job.ranks, difference=worst / largest, loss_difference=losses / loss)


def gradients_on_rank(world: World, run: Run) -> Sequence[tuple[float, Mapping[str, Tensor]]] | None:
    """One step on a rank; rank 0 gets everyone's loss and gradients by name."""
    member = Member(run, world)
    member.iterate()
    parts = partition(run.job.model.layers, member.plan.stages)
    found: dict[str, Tensor] = {}
    for (_, stage), chunk in member.chunks.items():
        found |= _named(chunk, sum(parts[:stage]))
    mine = member.losses[0], found
    everyone: list[tuple[float, Mapping[str, Tensor]]] | None = None
    if world.rank == 0:
        everyone = [mine] * world.size
    dist.gather_object(mine, everyone)
    return everyone


def _one_process(job: Job, device: Device) -> tuple[float, Mapping[str, Tensor]]:
    model, count = job.model, job.schedule.micro_batches
    chunk = build_chunk(
        model, (model.layers,), 0, seed=job.seed, dtype=DTYPES[job.precision], device=device.place
    )
    source = RandomTokens().source(
        model, micro_batch_size=job.micro_batch_size, micro_batches=count, seed=job.seed
    )
    total = torch.zeros((), dtype=torch.float64)
    for index in range(count):
        loss = chunk.forward(None, source.micro_batch(0, index).to(device.place))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach().cpu()
    return total.item(), _named(chunk, 0)


def _named(chunk: Chunk, first_layer: int) -> dict[str, Tensor]:
    """Gradients by a name that does not depend on the partition, on the CPU."""
    found = {}
    for name, parameter in chunk.named_parameters():
        if name.startswith("layers."):
            number, _, rest = name.removeprefix("layers.").partition(".")
            name = f"layers.{first_layer + int(number)}.{rest}"
        if name == "head.decoder_weight" and chunk.model.tied_embeddings:
            name = "embedding.token"
        assert parameter.grad is not None
        found[name] = parameter.grad.cpu()
    return found
