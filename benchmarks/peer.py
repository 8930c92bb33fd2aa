"""One rank of the comparison with torch.distributed.pipelining: same modules, same micro-batches.

One thing is not the same: our layers add weight gradients to the flat sum inside the matrix product
(:mod:`bitpipe.runtime.training.fused_gradient`), the peer's go through autograd's accumulators. So ours
run twice, as they are and with plain gradients like the peer's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from bitpipe.cluster import Link, Links, RankLayout
from bitpipe.models import ModelConfig, partition
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import Chunk, build_chunk
from bitpipe.runtime.clocks.clock import WallClock
from bitpipe.runtime.interpreter import Trainer
from bitpipe.runtime.plan import Plan, release_points
from bitpipe.runtime.processes.world import World, settle
from bitpipe.runtime.training.gradients import Gradients
from bitpipe.runtime.transport.mailbox import Mailbox
from bitpipe.schedule import ScheduleSpec, check, generate, lower

SCHEDULES: dict[str, tuple[Any, str, bool]] = {
    "gpipe": (ScheduleGPipe, "gpipe", False),
    "1f1b": (Schedule1F1B, "dapple", False),
    "interleaved_1f1b": (ScheduleInterleaved1F1B, "1f1b_int", False),
    "interleaved_zero_bubble": (ScheduleInterleavedZeroBubble, "1f1b_int", True),
}
"""Name → the peer's class, our method, whether the backward is split."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table."""

    schedule: str
    micro_batches: int
    layers: int
    hidden: int
    sequence: int
    micro_batch_size: int
    depth: int = 4
    vocabulary: int = 256


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Runs of a few iterations in turn, by side: ``own``, ``plain`` (ours, gradients not fused), ``peer``.

    Attributes:
        seconds: wall seconds between barriers.
        cpu: CPU seconds of all ranks.
        worst_gradient_difference: of either of ours from the peer's, relative to the largest element.
    """

    seconds: Mapping[str, tuple[float, ...]]
    cpu: Mapping[str, tuple[float, ...]]
    worst_gradient_difference: float


class PeerStage(nn.Module):
    """A chunk as the peer calls it: one tensor in, one out; the last one ends with the logits.

    The peer's zero bubble detaches a stage's output in place, so no parameter may come after it.
    """

    def __init__(self, chunk: Chunk, batch: MicroBatch) -> None:
        super().__init__()
        self.chunk = chunk
        self._batch = batch

    def forward(self, x: Tensor) -> Tensor:
        chunk, batch = self.chunk, self._batch
        if chunk.embedding is not None:
            x = chunk.embedding(replace(batch, tokens=x))
        for layer in chunk.layers:
            x = layer(x, batch.step, batch.index, None)
        if chunk.head is not None:
            head = chunk.head
            x = F.layer_norm(x, x.shape[-1:], head.norm_weight, head.norm_bias)
            x = F.linear(x, head.decoder)
        return x


def compare(world: World, case: Case, pairs: int, iterations: int = 1) -> Pairs | None:
    """Run all sides in turn, ``iterations`` each; returns what rank 0 measured."""
    settle()
    model = ModelConfig(
        name="peer",
        family="gpt",
        layers=case.layers,
        heads=4,
        hidden=case.hidden,
        sequence=case.sequence,
        vocabulary=case.vocabulary,
        dropout=0.0,
        tied_embeddings=False,
    )
    generator = torch.Generator().manual_seed(1)
    shape = case.micro_batches * case.micro_batch_size, case.sequence
    tokens = torch.randint(case.vocabulary, shape, generator=generator)
    labels = torch.randint(case.vocabulary, shape, generator=generator)
    batches = [
        MicroBatch(tokens=t, labels=y, step=0, index=m, normaliser=tokens.numel())
        for m, (t, y) in enumerate(
            zip(tokens.chunk(case.micro_batches), labels.chunk(case.micro_batches), strict=True)
        )
    ]
    own, mine = _own(world, case, model, batches, fused=True)
    plain, unfused = _own(world, case, model, batches, fused=False)
    peer, theirs = _peer(world, case, model, batches, tokens, labels)
    sides = {"own": own, "plain": plain, "peer": peer}
    for _ in range(3):
        for step in sides.values():
            step()
    worst = torch.zeros(1)
    for key, chunk in (*mine.items(), *unfused.items()):
        for a, b in zip(chunk.parameters(), theirs[key].parameters(), strict=True):
            assert a.grad is not None
            assert b.grad is not None
            scale = b.grad.abs().max().clamp_min(1e-12)
            worst = torch.maximum(worst, ((a.grad - b.grad).abs().max() / scale).reshape(1))
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(pairs):
        order = list(sides.items())
        for name, step in order if turn % 2 == 0 else reversed(order):
            dist.barrier()
            begun, spent = time.perf_counter(), time.process_time()
            for _ in range(iterations):
                step()
            spent = time.process_time() - spent
            dist.barrier()
            seconds[name].append(time.perf_counter() - begun)
            cpu[name].append(spent)
    spent_by_all = torch.tensor(list(cpu.values()))
    dist.all_reduce(spent_by_all)
    if world.rank:
        return None
    return Pairs(
        seconds={name: tuple(each) for name, each in seconds.items()},
        cpu={name: tuple(each) for name, each in zip(sides, spent_by_all.tolist(), strict=True)},
        worst_gradient_difference=worst.item(),
    )


Step = Callable[[], None]
Chunks = dict[tuple[int, int], Chunk]


def _own(
    world: World, case: Case, model: ModelConfig, batches: list[MicroBatch], *, fused: bool
) -> tuple[Step, Chunks]:
    _, method, split = SCHEDULES[case.schedule]
    spec = ScheduleSpec(
        method=method, depth=case.depth, micro_batches=case.micro_batches, split_backward=split
    )
    program = lower(generate(spec), sync="none")
    check(program)
    layout = RankLayout(name="sequential", width=1, depth=case.depth, devices_per_node=case.depth)
    link = Link(bandwidth=1.0, latency=0.0)
    links = Links(layout=layout, p2p_intra=link, p2p_inter=link, all_reduce_intra=link, all_reduce_inter=link)
    plan = Plan(program=program, layout=layout, rank=world.rank)
    placement = program.schedule.placement
    parts = partition(model.layers, placement.stages)
    chunks = {key: build_chunk(model, parts, key[1], seed=3) for key in placement.held[plan.device]}
    gradients = Gradients(plan, chunks, {}, learning_rate=1e-3, clip_norm=None)
    trainer = Trainer(
        plan,
        chunks,
        gradients,
        fused=fused,
        clock=WallClock(),
        releases=release_points(program)[plan.device],
        mailbox=Mailbox(
            slots=program.slots[plan.device],
            shape=(case.micro_batch_size, case.sequence, case.hidden),
            dtype=torch.float32,
        ),
        links=links,
        boundary_bytes=0,
        board=world.board,
    )
    feed = dict(enumerate(batches))

    def step() -> None:
        gradients.zero()
        trainer.feed(feed)
        trainer.run(last=False)

    return step, chunks


def _peer(
    world: World,
    case: Case,
    model: ModelConfig,
    batches: list[MicroBatch],
    tokens: Tensor,
    labels: Tensor,
) -> tuple[Step, Chunks]:
    kind, _, _ = SCHEDULES[case.schedule]
    per_rank = 2 if case.schedule.startswith("interleaved") else 1
    stages = case.depth * per_rank
    parts = partition(model.layers, stages)
    mine = [world.rank + case.depth * k for k in range(per_rank)]
    chunks = {(0, stage): build_chunk(model, parts, stage, seed=3) for stage in mine}
    boundary = torch.empty(case.micro_batch_size, case.sequence, case.hidden)
    first, last = mine[0] == 0, mine[-1] == stages - 1
    logits = torch.empty(case.micro_batch_size, case.sequence, case.vocabulary, requires_grad=True)

    def loss(y: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(y.flatten(0, 1), target.flatten(), reduction="sum") / tokens.numel()

    made = [
        PipelineStage(
            PeerStage(chunk, batches[0]),
            stage,
            stages,
            torch.device("cpu"),
            input_args=(batches[0].tokens if stage == 0 else boundary.clone().requires_grad_(),),
            output_args=(logits if stage == stages - 1 else boundary.clone().requires_grad_(),),
        )
        for (_, stage), chunk in chunks.items()
    ]
    schedule = kind(made if per_rank > 1 else made[0], case.micro_batches, loss_fn=loss, scale_grads=False)
    parameters = [p for chunk in chunks.values() for p in chunk.parameters()]
    run = partial(schedule.step, *((tokens,) if first else ()))

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        if last:
            run(target=labels, losses=[], return_outputs=False)
        else:
            run()

    return step, chunks
