"""Arithmetic against the modules: parameters exactly, FLOPs to torch's own count."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bitpipe.models import ModelConfig, arithmetic, partition
from bitpipe.models.micro_batch import MicroBatch
from bitpipe.models.transformer import build_chunk
from bitpipe.schedule.placement import PLACEMENTS
from tests.models.helpers import tiny

MODELS = Path(__file__).parents[2] / "conf" / "model"


def configured(name: str) -> ModelConfig:
    return ModelConfig(**yaml.safe_load((MODELS / f"{name}.yaml").read_text()))


models = st.builds(
    tiny,
    st.sampled_from(["bert", "gpt"]),
    layers=st.integers(1, 9),
    heads=st.just(2),
    hidden=st.sampled_from([4, 10, 64]),
    sequence=st.integers(1, 40),
    vocabulary=st.integers(1, 300),
    dropout=st.sampled_from([0.0, 0.1]),
    tied_embeddings=st.booleans(),
    next_sentence=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(model=models, data=st.data())
def test_stage_parameters_are_those_of_the_modules(model: ModelConfig, data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, model.layers))
    shared = data.draw(st.booleans()) and model.tied_embeddings
    parts = partition(model.layers, stages)
    first = build_chunk(model, parts, 0, seed=0, device="meta")
    total = 0
    for stage in range(stages):
        lent = first.tied if shared and 0 < stage == stages - 1 else None
        chunk = build_chunk(model, parts, stage, seed=0, device="meta", embedding=lent)
        count = sum(weight.numel() for weight in chunk.parameters())
        assert count == arithmetic.stage_parameters(model, stages, stage, shared=shared)
        total += count
    if shared or not model.tied_embeddings or stages == 1:
        assert total == arithmetic.parameters(model)


@settings(max_examples=20, deadline=None)
@given(model=models, size=st.integers(1, 3), data=st.data())
def test_stage_flops_are_those_that_torch_counts(model: ModelConfig, size: int, data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, model.layers))
    stage = data.draw(st.integers(0, stages - 1))
    chunk = build_chunk(model, partition(model.layers, stages), stage, seed=0, device="meta").eval()
    tokens = torch.empty(size, model.sequence, dtype=torch.int64, device="meta")
    follows = torch.empty(size, dtype=torch.int64, device="meta")
    batch = MicroBatch(
        tokens=tokens, labels=tokens, step=0, index=0, normaliser=1, follows=follows, samples=1
    )
    x = torch.empty(chunk.boundary(size), device="meta") if stage else None
    # The counter does not know the CPU's fused kernel; unfused, the same products are counted.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        chunk(x, batch)
    assert counter.get_total_flops() == arithmetic.stage_forward_flops(model, stages, stage, size)


@pytest.mark.parametrize("family", ["bert", "gpt"])
@pytest.mark.parametrize("stage", [1, 2])
def test_the_halves_of_a_backward_take_the_flops_that_torch_counts(family: str, stage: int) -> None:
    """A middle and a last stage: the gradient of the input alone, and the whole backward."""
    model = tiny(family, layers=6, heads=2, hidden=12, sequence=7, vocabulary=11)
    chunk = build_chunk(model, (2, 2, 2), stage, seed=0).eval()
    tokens = torch.zeros(3, model.sequence, dtype=torch.int64)
    batch = MicroBatch(tokens=tokens, labels=tokens, step=0, index=0, normaliser=1, samples=1)
    x = torch.randn(chunk.boundary(3), requires_grad=True)
    counted = []
    for wanted in ([x], [x, *chunk.parameters()]):
        with sdpa_kernel(SDPBackend.MATH):
            out = chunk(x, batch)
            with FlopCounterMode(display=False) as counter:
                torch.autograd.grad(out.sum(), wanted, allow_unused=True)
        counted.append(counter.get_total_flops())
    whole = 2 * arithmetic.stage_forward_flops(model, 3, stage, 3)
    weights = arithmetic.stage_weight_grad_flops(model, 3, stage, 3)
    assert counted == [whole - weights, whole]


def test_table_4_has_5_and_11_billion_parameters() -> None:
    counts = {name: arithmetic.parameters(configured(name)) for name in ("bert_64", "gpt_96")}
    assert counts["bert_64"] == pytest.approx(5e9, rel=0.03)
    assert counts["gpt_96"] == pytest.approx(11e9, rel=0.01)


@pytest.mark.parametrize("name", ["bert_64", "gpt_96", "bert_tiny", "gpt_tiny"])
def test_the_whole_model_on_meta_has_the_stated_parameters(name: str) -> None:
    model = configured(name)
    chunk = build_chunk(model, (model.layers,), 0, seed=0, device="meta")
    assert sum(weight.numel() for weight in chunk.parameters()) == arithmetic.parameters(model)
    assert model.name == name


@pytest.mark.parametrize("depth", [2, 4, 6])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("name", "chunks"), [("sequential", 1), ("cyclic", 2), ("cyclic", 3), ("v", 2), ("v", 3), ("v", 4)]
)
def test_a_device_shares_the_embedding_wherever_a_first_and_a_last_stage_meet(
    name: str, chunks: int, both: bool, depth: int
) -> None:
    """In the turns of a V, and between two pipes: the up pipe's head beside the down pipe's embedding."""
    model = tiny(layers=24)
    placement = PLACEMENTS[name](depth, chunks)
    placement = placement.mirrored() if both else placement
    total = sum(arithmetic.resident_parameters(model, placement, device) for device in range(depth))
    apart = 0 if both or placement.device(0, 0) == placement.device(0, -1) else 1
    copies = (1 + both) * arithmetic.parameters(model)
    assert total == copies + apart * model.vocabulary * model.hidden


def test_formulas_are_the_papers() -> None:
    model = configured("bert_64")
    h, s, a, b = 2560, 512, 64, 4
    assert arithmetic.layer_activation_bytes(model, b, fused=False) == s * b * (34 * h + 5 * a * s)
    assert arithmetic.layer_forward_flops(model, b) == pytest.approx(24 * b * s * h**2 * (1 + s / (6 * h)))
    assert arithmetic.boundary_bytes(model, b) == 2 * b * s * h
    weights = arithmetic.layer_weight_grad_flops(model, b)
    assert weights == s * b * h * 24 * h
    assert 2 * arithmetic.layer_forward_flops(model, b) - weights == s * b * h * (24 * h + 8 * s)
    assert 4 * arithmetic.layer_activation_bytes(model, b, fused=False) == 1960 * 2**20
    assert arithmetic.training_flops(model, 8) == 3 * sum(
        arithmetic.stage_forward_flops(model, 16, stage, 8) for stage in range(16)
    )


def test_arithmetic_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys; from bitpipe.models import arithmetic; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
