"""What autograd keeps, against the formulas, on real and on fake tensors."""

from __future__ import annotations

import gc

import pytest
import torch
from stage_memory import stage_memory

from bitpipe.errors import InputError
from bitpipe.models import arithmetic, partition
from bitpipe.models.memory import ActivationMeter
from bitpipe.models.transformer import build_chunk
from tests.models.helpers import random_batch, tiny
from tests.models.test_arithmetic import configured


@pytest.mark.parametrize("name", ["bert_64", "gpt_96"])
@pytest.mark.parametrize(("precision", "element"), [("bf16", 2), ("fp32", 4)])
def test_the_formula_is_what_the_real_models_keep(name: str, precision: str, element: int) -> None:
    model = configured(name)
    size = 4 if name == "bert_64" else 1
    for stage in (0, 1, 15):
        memory = stage_memory(model, 16, stage, size, precision=precision)
        formula = arithmetic.stage_activation_bytes(model, 16, stage, size, fused=True, element=element)
        if stage == 15:
            formula += arithmetic.logits_bytes(model, size)
        assert memory.activations == pytest.approx(formula, rel=2e-4)
        assert memory.parameters == arithmetic.stage_parameters(model, 16, stage)


def test_dropout_masks_and_nothing_else_vanish_without_dropout() -> None:
    sizes = []
    for dropout in (0.1, 0.0):
        model = tiny(layers=4, hidden=64, sequence=32, dropout=dropout)
        memory = stage_memory(model, 2, 0, 3, precision="fp32")
        sizes.append(memory.activations)
        formula = arithmetic.stage_activation_bytes(model, 2, 0, 3, fused=True, element=4)
        assert memory.activations == formula
    assert sizes[0] - sizes[1] == 3 * 32 * 64 * (2 * 2 + 1)


def test_state_is_18_bytes_a_parameter_in_half_precision_and_16_in_single() -> None:
    model = tiny(layers=2)
    for precision, each in (("bf16", 18), ("fp16", 18), ("fp32", 16), ("fp64", 32)):
        memory = stage_memory(model, 2, 1, 1, precision=precision)
        assert memory.resident == each * memory.parameters
    with pytest.raises(InputError, match=r"fp8.*allowed"):
        stage_memory(model, 2, 1, 1, precision="fp8")


def test_real_and_fake_tensors_agree() -> None:
    model = tiny(layers=4)
    for stage in range(2):
        chunk = build_chunk(model, (2, 2), stage, seed=0)
        batch = random_batch(model)
        x = torch.randn(chunk.boundary(3), requires_grad=True) if stage else None
        meter = ActivationMeter([*chunk.parameters(), batch.tokens, batch.labels])
        with meter:
            output = chunk(x, batch)
        assert meter.current == stage_memory(model, 2, stage, 3, precision="fp32").activations
        output.sum().backward()


def test_the_meter_counts_micro_batches_in_flight_and_nothing_after_the_last_backward() -> None:
    model = tiny(layers=3)
    chunk = build_chunk(model, partition(3, 3), 1, seed=0)
    meter = ActivationMeter(chunk.parameters())
    outputs, sizes = [], []
    for index in range(4):
        x = torch.randn(chunk.boundary(3), requires_grad=True)
        with meter:
            outputs.append(chunk(x, random_batch(model, index=index)))
        sizes.append(meter.current)
    each = sizes[0]
    assert sizes == [each, 2 * each, 3 * each, 4 * each]
    while outputs:
        outputs.pop().sum().backward()
        gc.collect()
        assert meter.current == each * len(outputs)
    assert meter.peak == 4 * each
    meter.reset()
    assert meter.peak == 0


def test_the_meter_changes_no_gradient() -> None:
    model = tiny(layers=3)
    gradients = []
    for metered in (False, True):
        chunk = build_chunk(model, (3,), 0, seed=0)
        if metered:
            with ActivationMeter(chunk.parameters()):
                loss = chunk(None, random_batch(model))
        else:
            loss = chunk(None, random_batch(model))
        loss.backward()
        gradients.append([weight.grad for weight in chunk.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
