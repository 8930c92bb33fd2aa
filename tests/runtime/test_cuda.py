"""What only a GPU can show; ``make gpu-check`` runs these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from bitpipe.models import ModelConfig
from bitpipe.models.compiling import compile_layers
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import Chunk, build_chunk
from bitpipe.runtime import device as cuda
from bitpipe.runtime.clocks.event_clock import EventClock
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.training.optimizer import Adam
from bitpipe.runtime.training.precision import LossScale
from bitpipe.runtime.transport.nccl import open_groups, require_nccl
from bitpipe.schedule import Kind

MODEL = ModelConfig(name="small", family="gpt", layers=2, heads=4, hidden=64, sequence=32, vocabulary=128)
pytestmark = pytest.mark.skipif(cuda.obstacle() is not None, reason=f"no GPU: {cuda.obstacle()}")


@pytest.fixture(scope="module")
def gpu() -> cuda.Gpu:
    return cuda.Gpu()


@pytest.fixture
def alone() -> Iterator[World]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield World(rank=0, size=1)
    dist.destroy_process_group()


def chunk_on(device: torch.device, dtype: torch.dtype, **changes: Any) -> Chunk:
    model = ModelConfig(**{**vars(MODEL), **changes})
    return build_chunk(model, (2,), 0, seed=1, dtype=dtype, device=device)


def batch_on(device: torch.device) -> MicroBatch:
    tokens = torch.randint(128, (2, 32), generator=torch.Generator().manual_seed(0))
    return MicroBatch(tokens=tokens, labels=tokens.roll(-1, 1), step=0, index=0, normaliser=64).to(device)


def test_copies_to_and_from_the_host_are_whole_and_in_order(gpu: cuda.Gpu) -> None:
    source = torch.zeros(1 << 22, device=gpu.place)
    host = gpu.host_buffer(source.shape, source.dtype)
    assert host.is_pinned()
    for value in range(1, 4):
        source.fill_(value)
        copied = gpu.copy_out(source, host)
        copied.synchronize()
        assert copied.query()
        assert host.eq(value).all()
    target = torch.zeros_like(source)
    gpu.copy_in(host, target).synchronize()
    assert target.eq(3).all()


def test_events_measure_what_the_device_does(gpu: cuda.Gpu) -> None:
    a = torch.randn(4096, 4096, device=gpu.place, dtype=torch.bfloat16)
    (a @ a).sum().item()
    clock = EventClock(gpu)
    clock.restart(0.0)
    spans: list[Any] = []
    for count in (1, 32):
        begun = clock.begin()
        for _ in range(count):
            a @ a
        spans.append(clock.end(begun))
    clock.settle(spans)
    (first, second), (third, fourth) = spans
    assert 0 <= first < second <= third < fourth
    assert fourth - third > 4 * (second - first)


def test_peak_memory_is_the_allocators(gpu: cuda.Gpu) -> None:
    before = gpu.allocated()
    with gpu.meter([]) as peak:
        held = torch.empty(64 << 20, dtype=torch.uint8, device=gpu.place)
        del held
    assert peak.total is not None
    assert peak.total - before == 64 << 20


def test_a_chunk_computes_what_it_computes_on_a_cpu(gpu: cuda.Gpu) -> None:
    ours, theirs = (chunk_on(place, torch.float64, dropout=0.0) for place in (gpu.place, torch.device("cpu")))
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other)
    losses = []
    for chunk, place in ((ours, gpu.place), (theirs, torch.device("cpu"))):
        loss = chunk.forward(None, batch_on(place))
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-9, atol=1e-12)


def test_dropout_on_a_gpu_repeats(gpu: cuda.Gpu) -> None:
    chunk = chunk_on(gpu.place, torch.float32)
    first, second = (chunk.forward(None, batch_on(gpu.place)).item() for _ in range(2))
    assert first == second


def test_fused_adam_steps_as_on_a_cpu(gpu: cuda.Gpu) -> None:
    results = []
    for place in (gpu.place, torch.device("cpu")):
        generator = torch.Generator().manual_seed(3)
        weight = torch.randn(1000, generator=generator).to(place).requires_grad_()
        weight.grad = torch.randn(1000, generator=generator).to(place)
        adam = Adam([weight], 1e-2)
        for _ in range(3):
            adam.step()
        results.append(weight.detach().cpu())
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-7)


def test_an_overflow_on_the_device_is_seen(gpu: cuda.Gpu, alone: World) -> None:
    scale = LossScale(gpu.place, first=8.0)
    good, bad = (torch.full((100,), value, device=gpu.place) for value in (16.0, float("inf")))
    assert not scale.settle([good])
    assert good.eq(2.0).all()
    assert scale.settle([good, bad])
    assert (scale.value, scale.seed.item(), scale.skipped) == (4.0, 4.0, 1)


def test_nccl_opens(gpu: cuda.Gpu, alone: World) -> None:
    require_nccl(gpu, alone)
    groups = alone.groups({(Kind.SYNC, 0): (0,)}, "nccl")
    open_groups(groups, gpu)
    tensor = torch.ones(8, device=gpu.place)
    work = dist.all_reduce(tensor, group=groups[Kind.SYNC, 0], async_op=True)
    assert work is not None
    work.wait()
    assert tensor.eq(1).all()


def test_compiled_layers_compute_the_same(gpu: cuda.Gpu) -> None:
    plain, compiled = (chunk_on(gpu.place, torch.float32) for _ in range(2))
    compile_layers([compiled], "inductor")
    losses = []
    for chunk in (plain, compiled):
        loss = chunk.forward(None, batch_on(gpu.place))
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for mine, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-2, atol=1e-4)
