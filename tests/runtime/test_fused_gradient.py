"""Layers that add their weights' gradients in place compute what autograd computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from training import RandomData, job_of, links_of, model_of

from bitpipe.models.layer import transform
from bitpipe.models.memory import ActivationMeter
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import build_chunk
from bitpipe.runtime.block import prepare
from bitpipe.runtime.member import Member
from bitpipe.runtime.processes.pool import Pool
from bitpipe.runtime.processes.world import World
from bitpipe.runtime.target import Target
from bitpipe.runtime.training.fused_gradient import fuse, fused_transform
from bitpipe.runtime.training.gradients import Flat

CASES = [("gpt", 0.0, False), ("gpt", 0.1, False), ("bert", 0.0, True), ("bert", 0.1, True)]


def batch_of(index: int, *, padded: bool) -> MicroBatch:
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(40, (2, 8), generator=generator)
    keep = torch.arange(8) < torch.tensor([[8], [5]]) if padded else None
    return MicroBatch(tokens=tokens, labels=tokens, step=0, index=index, normaliser=32, keep=keep)


def computed(
    family: str, dropout: float, padded: bool, *, fused: bool, stages: int = 1
) -> tuple[torch.Tensor, ...]:
    """Losses or outputs of two micro-batches in flight at once, the gradients of all weights, and
    the activation bytes after the first forward, both forwards, the first backward and both."""
    chunk = build_chunk(
        model_of(family, layers=2, dropout=dropout), [2] + [0] * (stages - 1), 0, seed=3, dtype=torch.float64
    )
    flat = Flat(chunk.parameters())
    if fused:
        fuse([chunk])
    meter = ActivationMeter(chunk.parameters())
    kept, results = [], []
    for index in range(2):
        with meter:
            results.append(chunk(None, batch_of(index, padded=padded)))
        kept.append(meter.current)
    seen = [result.detach().clone() for result in results]
    while results:
        result = results.pop(0)
        result.backward(torch.sin(torch.arange(result.numel(), dtype=torch.float64)).add(1).view_as(result))
        kept.append(meter.current)
    return torch.stack(seen), flat.sum, torch.tensor(kept)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize(("family", "dropout", "padded"), CASES)
def test_outputs_gradients_and_activations_are_those_of_autograd(
    family: str, dropout: float, padded: bool, stages: int
) -> None:
    plain = computed(family, dropout, padded, fused=False, stages=stages)
    fused = computed(family, dropout, padded, fused=True, stages=stages)
    assert plain[1].abs().max() > 1e-3
    assert torch.equal(fused[0], plain[0])
    assert (fused[1] - plain[1]).abs().max() <= 1e-12
    assert torch.equal(fused[2], plain[2]), "activation bytes"
    assert fused[2][-1] == 0


def test_gradients_add_to_what_is_there() -> None:
    chunk = build_chunk(model_of("gpt", layers=1, dropout=0.0), [1], 0, seed=3, dtype=torch.float64)
    flat = Flat(chunk.parameters())
    fuse([chunk])
    chunk(None, batch_of(0, padded=False)).backward()
    once = flat.sum.clone()
    flat.sum.fill_(1.0)
    chunk(None, batch_of(0, padded=False)).backward()
    used = once != 0  # not the gaps between parameters
    torch.testing.assert_close(flat.sum[used], once[used] + 1.0, rtol=0, atol=1e-12)


def ways(world: World, run: Any) -> list[bool]:
    """Which of rank 0's layers add in place."""
    chunks = Member(run, world).chunks.values()
    return [layer.compute is fused_transform for chunk in chunks for layer in chunk.layers]


@pytest.mark.parametrize(
    ("changes", "target", "fused"),
    [
        ({}, Target(), True),
        ({"precision": "fp32"}, Target(), True),
        ({"split_backward": True}, Target(), False),
        ({"precision": "bf16"}, Target(), False),
        ({}, Target(compile="eager"), False),
    ],
    ids=["fp64", "fp32", "split backward", "half precision", "compiled"],
)
def test_where_layers_add_in_place(
    pool_of: Callable[[int], Pool], changes: dict[str, Any], target: Target, fused: bool
) -> None:
    job = job_of("bitpipe", 2, 2, **changes)
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData(), target=target)
    found = pool_of(2).call(ways, run)
    assert found
    assert set(found) == {fused}


def test_a_layer_that_computes_otherwise_stays_as_it_is() -> None:
    chunk = build_chunk(replace(model_of("gpt"), layers=2), [2], 0, seed=3)
    chunk.layers[0].compute = other = lambda *given: transform(*given)
    fuse([chunk])
    assert chunk.layers[0].compute is other
    assert chunk.layers[1].compute is fused_transform
