"""Predictions: what a job takes and holds, against hand arithmetic and the paper's facts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from bitpipe.cluster import LinkClass
from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.models import ModelConfig, arithmetic
from bitpipe.origin import Origin
from bitpipe.schedule.action import Action, Kind
from bitpipe.simulate import Prediction, Verdict, conf, predict
from bitpipe.simulate.cells import Methods
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.memory import verdict

METHODS = Methods()
A800 = conf.cluster("a800")
PHYSICAL = conf.calibration("physical")
BERT, GPT = conf.model("bert_64"), conf.model("gpt_96")
GIB = 2**30


def job(label: str = "full", model: ModelConfig = BERT, **sizes: int) -> Job:
    values = {"depth": 4, "width": 1, "size": 4, "micro_batches": 4} | sizes
    return METHODS.job(label, model=model, **values)


def run(label: str = "full", model: ModelConfig = BERT, **sizes: int) -> Prediction:
    return predict(job(label, model, **sizes), A800, PHYSICAL)


def test_a_forward_takes_its_flops_over_the_rate_and_a_backward_twice_that() -> None:
    costs = CostModel(job=job(), cluster=A800, calibration=PHYSICAL)
    flops = arithmetic.stage_forward_flops(BERT, 8, 3, 4)
    forward = flops / (A800.device.peak_flops * PHYSICAL.compute_efficiency)
    assert costs.seconds(0, Action(Kind.F, 0, 3)) == pytest.approx(forward)
    assert costs.seconds(0, Action(Kind.B, 0, 3)) == pytest.approx(2 * forward)


def test_the_halves_of_a_split_backward_differ_by_attention_and_make_up_the_whole() -> None:
    """Per layer I takes s·B·h·(24h + 8s) FLOPs and W 24·s·B·h²; the head has no attention."""
    costs = CostModel(job=job(), cluster=A800, calibration=PHYSICAL)
    for stage in range(8):
        b, i, w = (costs.seconds(0, Action(kind, 0, stage)) for kind in (Kind.B, Kind.I, Kind.W))
        assert i + w == pytest.approx(b)
        if stage < 7:
            h, s = BERT.hidden, BERT.sequence
            assert i / w == pytest.approx((24 * h + 8 * s) / (24 * h))
        assert i > w


def test_the_overhead_is_paid_once_per_action() -> None:
    slow = replace(PHYSICAL, op_overhead=1e-3)
    costs, ideal = (CostModel(job=job(), cluster=A800, calibration=c) for c in (slow, PHYSICAL))
    for kind in (Kind.F, Kind.B):
        action = Action(kind, 0, 3)
        assert costs.seconds(0, action) - ideal.seconds(0, action) == pytest.approx(1e-3)


def test_the_head_burdens_the_last_stage_alone() -> None:
    seconds = CostModel(job=job(), cluster=A800, calibration=PHYSICAL).forward_seconds
    assert len(set(seconds[:-1])) == 1
    assert seconds[-1] > seconds[0]


def test_two_replicas_of_the_weights_double_the_optimizer_step() -> None:
    one, two = (CostModel(job=job(label), cluster=A800, calibration=PHYSICAL) for label in ("dapple", "full"))
    step = Action(Kind.STEP)
    ratio = sum(two.seconds(r, step) for r in range(4)) / sum(one.seconds(r, step) for r in range(4))
    assert ratio == pytest.approx(2 * 78 / 66, rel=0.02)  # cyclic ends hold the tied embedding twice


@pytest.mark.parametrize(
    ("label", "moved"), [("dapple", 66), ("1f1b_int", 66), ("chimera", 78), ("full", 78)]
)
def test_the_optimizer_moves_66_bytes_per_parameter_and_12_more_for_two_directions(
    label: str, moved: int
) -> None:
    """At 0.7 of the memory bandwidth: nothing of it is fitted."""
    costs = CostModel(job=job(label), cluster=A800, calibration=PHYSICAL)
    seconds = costs.seconds(1, Action(Kind.STEP)) / costs.resident_parameters[costs.layout.places[1][1]]
    assert seconds == pytest.approx(moved / (0.7 * 2.039e12))


def test_all_gradients_are_reduced_once_whether_the_embedding_is_tied_apart_or_not() -> None:
    whole = arithmetic.parameters(BERT) * PHYSICAL.gradient_bytes
    together, apart = (
        CostModel(job=job(label), cluster=A800, calibration=PHYSICAL) for label in ("full", "without_v")
    )
    assert sum(together.gradient_bytes) == whole
    assert sum(apart.gradient_bytes) + apart.size(Action(Kind.TIE, -1, 0)) == whole


def test_throughput_is_the_global_batch_over_the_iteration() -> None:
    found = run(width=2)
    assert found.samples_per_s * found.iteration_seconds == pytest.approx(4 * 4 * 2)
    assert found.timeline.origin is Origin.SIMULATED
    assert found.timeline.makespan == pytest.approx(found.iteration_seconds)
    assert found.timeline.bubble_ratio == pytest.approx(found.bubble_ratio)


def test_every_event_of_the_timeline_lies_within_the_iteration_and_no_device_does_two_things() -> None:
    timeline = run(depth=4, micro_batches=8).timeline
    for rank in range(4):
        compute = sorted((e.start, e.end) for e in timeline.compute if e.device == rank)
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(compute))
        assert compute[0][0] >= 0


def test_the_memory_curve_peaks_where_the_prediction_says() -> None:
    found = run("dapple", micro_batches=8)
    peaks = [max(held for _, held in curve) for curve in found.timeline.memory]
    assert peaks == pytest.approx(found.peak_memory_bytes)


def test_dapple_holds_d_micro_batches_on_its_first_device_and_one_on_its_last() -> None:
    found = run("dapple", micro_batches=8)
    per_stage = [arithmetic.stage_activation_bytes(BERT, 4, stage, 4, fused=False) for stage in range(4)]
    held = [memory.activations for memory in found.memory]
    assert held == [4 * per_stage[0], 3 * per_stage[1], 2 * per_stage[2], per_stage[3]]


def test_fused_attention_needs_less() -> None:
    found = run()
    fused = found.memory_with("fused")
    assert all(a.activations < b.activations for a, b in zip(fused, found.memory, strict=True))
    with pytest.raises(InputError, match="did you mean fused"):
        found.memory_with("fusd")


def test_traffic_counts_every_transfer_by_the_link_it_takes() -> None:
    # The V turn stays on its device: 2·N·v·(D−1) messages against the cyclic 2·N·(vD−1).
    count = {
        label: sum(t.messages for t in run(label).traffic if t.kind.startswith("activation"))
        for label in ("full", "without_v")
    }
    assert count == {"full": 48, "without_v": 56}


def test_the_mapping_keeps_gradients_inside_a_node_and_sends_activations_across() -> None:
    def across(label: str) -> set[str]:
        return {t.kind for t in run(label, depth=16, micro_batches=16).traffic if t.link is LinkClass.INTER}

    assert across("full") == {"activation", "activation_gradient"}
    assert "gradient_sync" in across("without_m")


def test_replicas_that_are_alike_are_worked_out_once_and_differ_only_in_their_rank() -> None:
    found = run(width=4, depth=8, micro_batches=8)
    assert len({id(spans) for spans in found.trace.spans}) == 1
    assert len(found.peak_memory_bytes) == 32


@pytest.mark.parametrize(("depth", "given", "padded"), [(4, 3, 4), (8, 9, 16)])
def test_empty_micro_batches_cost_what_ranks_pay_for_them(depth: int, given: int, padded: int) -> None:
    """Time, bytes and memory; only the samples are fewer."""
    full = job(depth=depth, micro_batches=padded)
    short = replace(full, schedule=replace(full.schedule, micro_batches=given, pad=True))
    found, whole = (predict(one, A800, PHYSICAL) for one in (short, full))
    assert found.iteration_seconds == whole.iteration_seconds
    assert found.busy_seconds == whole.busy_seconds
    assert found.traffic == whole.traffic
    assert found.memory == whole.memory
    assert found.samples_per_s == pytest.approx(whole.samples_per_s * given / padded)


def test_a_job_larger_than_its_cluster_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="a800 has 32 devices"):
        run(depth=16, width=4)


@pytest.mark.parametrize(
    ("cluster", "calibration", "changes", "doubt"),
    [
        ("a800", "physical", {}, None),
        ("a800", "physical", {"precision": "bf16"}, None),
        ("a800", "physical", {"micro_batch_size": 1}, None),
        ("a800", "physical", {"model": GPT, "micro_batch_size": 1}, None),
        ("h100", "physical", {}, "fitted on NVIDIA A800"),
        ("a800", "physical", {"precision": "fp32"}, "fitted in fp16"),
        ("a800", "physical", {"micro_batch_size": 64}, "other micro-batches than 32768 tokens"),
        ("a800", "physical", {"width": 4}, "no rate between nodes"),
        ("a800", "full_cells_two_nodes", {"width": 4}, None),
        (
            "a800",
            "full_cells_two_nodes",
            {"width": 4, "layout": "sequential"},
            "in all-reduces between nodes",
        ),
    ],
)
def test_a_prediction_says_why_its_calibration_does_not_cover_it(
    cluster: str, calibration: str, changes: dict[str, Any], doubt: str | None
) -> None:
    found = predict(replace(job(), **changes), conf.cluster(cluster), conf.calibration(calibration))
    assert found.calibrated is (doubt is None)
    if doubt:
        assert [doubt in said for said in found.doubts] == [True]


# --- the paper's memory settings (section 2.2), 80 GiB, attention unfused ---------------------


@pytest.mark.parametrize("label", ["dapple", "1f1b_int", "chimera", "full"])
@pytest.mark.parametrize("micro_batches", [8, 16, 32])
@pytest.mark.parametrize(("model", "size"), [(BERT, 4), (GPT, 1)])
def test_every_setting_of_figure_8_fits(
    label: str, micro_batches: int, model: ModelConfig, size: int
) -> None:
    assert run(label, model, depth=8, size=size, micro_batches=micro_batches).verdict is Verdict.FITS


@pytest.mark.parametrize(
    ("model", "depth", "width", "size"), [(BERT, 4, 8, 8), (BERT, 8, 4, 8), (GPT, 8, 4, 2)]
)
def test_the_two_readings_of_n_disagree_on_what_fits(
    model: ModelConfig, depth: int, width: int, size: int
) -> None:
    per_device = 4 if model is BERT else 1
    at_fixed_batch = per_device * 32 // (size * width)
    n_is_d = run(model=model, depth=depth, width=width, size=size, micro_batches=depth)
    fixed = run(model=model, depth=depth, width=width, size=size, micro_batches=at_fixed_batch)
    assert n_is_d.verdict is Verdict.DOES_NOT_FIT
    assert fixed.verdict is Verdict.FITS


@pytest.mark.parametrize(("model", "depth", "size", "micro_batches"), [(BERT, 4, 4, 16), (GPT, 8, 1, 32)])
def test_early_forward_is_borderline_where_memory_is_nearly_full(
    model: ModelConfig, depth: int, size: int, micro_batches: int
) -> None:
    wanted = job(model=model, depth=depth, size=size, micro_batches=micro_batches)
    early = replace(wanted, schedule=replace(wanted.schedule, early_forward=True))
    found = predict(early, A800, PHYSICAL)
    assert found.verdict is Verdict.BORDERLINE
    assert 77 * GIB < max(found.peak_memory_bytes) < 80 * GIB


def test_verdicts_at_their_edges() -> None:
    assert verdict(77, 80) is Verdict.FITS
    assert verdict(77.1, 80) is Verdict.BORDERLINE
    assert verdict(80.1, 80) is Verdict.DOES_NOT_FIT
