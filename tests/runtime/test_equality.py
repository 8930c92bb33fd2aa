"""Pipeline training is the training of one process: losses, gradients and weights, in fp64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from training import (
    RandomData,
    Reference,
    job_of,
    links_of,
    model_of,
    reference,
    train_on_ranks,
    worst_difference,
)

from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.runtime.block import prepare
from bitpipe.runtime.processes.pool import Pool
from bitpipe.schedule import (
    METHODS,
    Action,
    Instruction,
    Kind,
    Program,
    Schedule,
    even_pipes,
    generate,
    lower,
    sequential,
)

BOUND = 1e-10
VARIANTS: dict[str, dict[str, Any]] = {
    "gpipe": {"method": "gpipe"},
    "dapple": {"method": "dapple"},
    "1f1b_int": {"method": "1f1b_int"},
    "chimera": {"method": "chimera"},
    "chimera_doubled": {"method": "chimera_doubled"},
    "mixpipe": {"method": "mixpipe"},
    "bitpipe": {"method": "bitpipe"},
    "bitpipe_cyclic": {"method": "bitpipe", "placement": "cyclic"},
    "bitpipe_early_forward": {"method": "bitpipe", "early_forward": True},
    "bitpipe_split": {"method": "bitpipe", "split_backward": True},
    "bitpipe_cyclic_split": {"method": "bitpipe", "placement": "cyclic", "split_backward": True},
    "dapple_split": {"method": "dapple", "split_backward": True},
    "chimera_split": {"method": "chimera", "split_backward": True},
    "zb_h1": {"method": "zb_h1"},
    "zb_h2": {"method": "zb_h2"},
    "zb_v": {"method": "zb_v"},
    "v_half": {"method": "v_half"},
    "v_min": {"method": "v_min"},
    "hanayo": {"method": "hanayo"},
    "breadth_first": {"method": "breadth_first"},
    "gems": {"method": "gems"},
    "dualpipe": {"method": "dualpipe"},
    "dualpipe_split": {"method": "dualpipe", "split_backward": True},
    "dualpipe_v": {"method": "dualpipe_v"},
    "bitpipe_padded": {"method": "bitpipe", "pad": True},
    "gpipe_padded": {"method": "gpipe", "pad": True},
}


@cache
def expected(job: Job, passes: int) -> Reference:
    return reference(job, RandomData(), passes=passes)


def reference_of(job: Job, passes: int) -> Reference:
    """Single-process training depends on the samples only, not on how they are scheduled."""
    plain = job_of(
        "gpipe",
        2,
        job.schedule.micro_batches * job.width,
        sync="late",
        layout="sequential",
        model=job.model,
        clip_norm=job.clip_norm,
    )
    return expected(plain, passes)


def assert_equal(pool_of: Callable[[int], Pool], job: Job, *, clock: str = "wall", passes: int = 1) -> None:
    (run,) = prepare(
        [job], clock=clock, links=[links_of(job, devices_per_node=4)], data=RandomData(), passes=passes
    )
    trained = pool_of(job.ranks).call(train_on_ranks, run)
    assert worst_difference(trained, reference_of(job, passes)) <= BOUND
    if job.clip_norm is not None:
        norms = reference_of(job, passes).norms
        assert trained[0].norms == pytest.approx(norms, rel=1e-9)
        assert min(norms) > job.clip_norm, "the bound must bind, or the test shows nothing"


# A pairwise subset: every method with every other choice at least once.
PAIRWISE = [
    # variant, N, W, family, tied, sync, clip
    ("gpipe", 4, 1, "bert", True, "eager", None),
    ("gpipe", 8, 2, "gpt", False, "late", 0.05),
    ("dapple", 8, 1, "gpt", True, "late", 0.05),
    ("dapple", 4, 2, "bert", True, "eager", None),
    ("1f1b_int", 4, 1, "gpt", False, "late", None),
    ("1f1b_int", 8, 2, "bert", True, "eager", 0.05),
    ("chimera", 4, 1, "bert", True, "eager", 0.05),
    ("chimera", 8, 2, "gpt", True, "late", None),
    ("mixpipe", 8, 1, "gpt", False, "eager", None),
    ("mixpipe", 4, 2, "bert", True, "late", 0.05),
    ("bitpipe", 4, 1, "gpt", True, "eager", None),
    ("bitpipe", 8, 2, "bert", True, "eager", 0.05),
    ("bitpipe", 8, 1, "bert", False, "late", 0.05),
    ("bitpipe_cyclic", 8, 1, "bert", True, "eager", 0.05),
    ("bitpipe_cyclic", 4, 2, "gpt", True, "late", None),
    ("bitpipe_early_forward", 8, 1, "gpt", True, "late", None),
    ("bitpipe_split", 8, 2, "bert", True, "eager", 0.05),
    ("bitpipe_split", 4, 1, "gpt", True, "late", None),
    ("bitpipe_cyclic_split", 4, 1, "bert", True, "eager", None),
    ("dapple_split", 8, 1, "bert", True, "eager", None),
    ("chimera_doubled", 8, 1, "bert", True, "eager", None),
    ("zb_h1", 8, 1, "gpt", True, "late", 0.05),
    ("zb_h1", 4, 2, "bert", True, "eager", None),
    ("zb_h2", 8, 1, "bert", True, "late", None),
    ("zb_v", 8, 2, "gpt", True, "eager", 0.05),
    ("zb_v", 4, 1, "bert", True, "late", None),
    ("v_half", 8, 1, "gpt", True, "eager", None),
    ("v_min", 8, 1, "bert", True, "eager", 0.05),
    ("hanayo", 4, 2, "gpt", True, "eager", None),
    ("breadth_first", 8, 1, "gpt", True, "eager", 0.05),
    ("gems", 4, 2, "bert", True, "eager", 0.05),
    ("dualpipe", 8, 1, "gpt", True, "eager", None),
    ("dualpipe_split", 8, 2, "bert", True, "eager", 0.05),
    ("dualpipe_v", 8, 1, "bert", True, "late", 0.05),
]


@pytest.mark.parametrize(("variant", "count", "width", "family", "tied", "sync", "clip"), PAIRWISE)
def test_pairwise(
    pool_of: Callable[[int], Pool],
    variant: str,
    count: int,
    width: int,
    family: str,
    tied: bool,
    sync: str,
    clip: float | None,
) -> None:
    job = job_of(
        depth=4,
        micro_batches=count,
        width=width,
        sync=sync,
        clip_norm=clip,
        model=model_of(family, tied_embeddings=tied),
        **VARIANTS[variant],
    )
    assert_equal(pool_of, job)


@pytest.mark.parametrize("variant", ["bitpipe", "bitpipe_cyclic"])
def test_stamped_messages_carry_the_same_tensors(pool_of: Callable[[int], Pool], variant: str) -> None:
    assert_equal(pool_of, job_of(depth=4, micro_batches=4, **VARIANTS[variant]), clock="virtual")


@pytest.mark.parametrize(("variant", "count"), [("bitpipe", 4), ("bitpipe_padded", 6), ("gpipe_padded", 3)])
def test_both_of_berts_losses_leave_padding_out(
    pool_of: Callable[[int], Pool], variant: str, count: int
) -> None:
    model = model_of("bert", next_sentence=True)
    assert_equal(pool_of, job_of(depth=4, micro_batches=count, model=model, **VARIANTS[variant]))


@pytest.mark.parametrize("variant", ["dapple", "bitpipe_cyclic"])
def test_gradients_accumulate_over_passes(pool_of: Callable[[int], Pool], variant: str) -> None:
    job = job_of(depth=4, micro_batches=4, clip_norm=0.05, **VARIANTS[variant])
    assert_equal(pool_of, job, passes=3)


@pytest.mark.parametrize("variant", ["bitpipe_padded", "gpipe_padded"])
@pytest.mark.parametrize("count", [3, 5])
def test_empty_micro_batches_add_nothing(pool_of: Callable[[int], Pool], variant: str, count: int) -> None:
    assert_equal(pool_of, job_of(depth=4, micro_batches=count, **VARIANTS[variant]))


def test_half_precision_keeps_full_precision_weights(pool_of: Callable[[int], Pool]) -> None:
    """bf16 activations and gradients, fp32 sums and Adam: losses follow those of fp64."""
    job = job_of("bitpipe", 4, 4, precision="bf16")
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData())
    trained = pool_of(4).call(train_on_ranks, run)
    exact = reference_of(job, 1).losses
    assert trained[0].losses == pytest.approx(exact, rel=0.03)
    assert {weight.dtype for weight in trained[0].weights.values()} == {torch.bfloat16}


OWN = {
    "whole and split backwards": ["F0@0d F1@0d B0@0d I1@0d W1@0d", "F0@1d B0@1d F1@1d I1@1d W1@1d"],
    "recomputation": ["F0@0d F1@0d R0@0d B0@0d R1@0d I1@0d W1@0d", "F0@1d B0@1d F1@1d R1@1d I1@1d W1@1d"],
    "three pipes": [
        "F0@0d F2@1p2 F1@2u B1@2u B2@1p2 B0@0d",
        "F1@0u F0@1d F2@2p2 B2@2p2 B0@1d B1@0u",
        "F2@0p2 F1@1u F0@2d B0@2d B1@1u B2@0p2",
    ],
}


@pytest.mark.parametrize("rows", OWN.values(), ids=OWN)
@pytest.mark.parametrize(("width", "clock"), [(1, "virtual"), (2, "wall")])
def test_schedules_that_only_a_user_has(
    pool_of: Callable[[int], Pool], tmp_path: Path, rows: list[str], width: int, clock: str
) -> None:
    (tmp_path / "own.txt").write_text("\n".join(rows))
    job = job_of(f"file:{tmp_path / 'own.txt'}", len(rows), len(rows), width=width, clip_norm=0.05)
    assert_equal(pool_of, job, clock=clock)


@pytest.mark.parametrize(
    ("method", "width", "tied", "clock"),
    [("bitpipe", 1, True, "virtual"), ("chimera", 2, True, "wall"), ("dapple", 2, False, "virtual")],
)
def test_replicas_that_step_a_share_each(
    pool_of: Callable[[int], Pool], method: str, width: int, tied: bool, clock: str
) -> None:
    """Reduce-scatter, a step of one's share, all-gather: the optimizer's state is there once."""
    job = job_of(method, 4, 4, width=width, clip_norm=0.05, model=model_of(tied_embeddings=tied))
    program = lower(generate(job.schedule), sync="eager", width=width, tied=tied, sharded=True)
    (run,) = prepare([job], clock=clock, links=[links_of(job)], data=RandomData(), programs=[program])
    trained = pool_of(job.ranks).call(train_on_ranks, run)
    expected_ = reference_of(job, 1)
    # A rank has its share of the summed gradients only; the global norm and the weights show them all.
    assert trained[0].norms == pytest.approx(expected_.norms, rel=1e-9)
    ranks = [replace(rank, gradients=expected_.gradients) for rank in trained]
    assert worst_difference(ranks, expected_) <= BOUND


def both_ways(depth: int, count: int) -> Schedule:
    """A bidirectional GPipe: all forwards as they become ready, then all backwards."""
    placement = sequential(depth).mirrored()
    pipes = even_pipes(count, 2)
    orders = []
    for device in range(depth):
        held = [
            (m, stage, pipe)
            for m, pipe in enumerate(pipes)
            for p, stage in placement.held[device]
            if p == pipe
        ]
        forward = sorted(held, key=lambda c: (c[0] + c[1], c))
        backward = sorted(held, key=lambda c: (c[0] + depth - 1 - c[1], c))
        orders.append(
            tuple(
                Action(kind, *chunk) for kind, row in ((Kind.F, forward), (Kind.B, backward)) for chunk in row
            )
        )
    return Schedule(method="both_ways", placement=placement, pipes=pipes, orders=tuple(orders))


def with_late_sync(program: Program) -> Program:
    """Add all-reduces in front of STEP, for every stage in both pipes and the embedding."""
    placement = program.schedule.placement
    rows = []
    for device, row in enumerate(program.rows):
        held = sorted(placement.held[device], key=lambda chunk: chunk[1])
        actions = [Action(Kind.SYNC, -1, stage, pipe) for pipe, stage in held]
        if any(stage in (0, placement.stages - 1) for _, stage in held):
            actions.append(Action(Kind.TIE, -1, 0, 0))
        number = row[-1].sequence
        added = [Instruction(action, sequence=number + k) for k, action in enumerate(actions)]
        rows.append((*row[:-1], *added, row[-1]._replace(sequence=number + len(added))))
    return replace(program, rows=tuple(rows), sync_order=tuple(range(placement.stages)))


@pytest.mark.parametrize("width", [1, 2])
def test_a_middle_device_sums_both_replicas_of_its_stage(pool_of: Callable[[int], Pool], width: int) -> None:
    """D = 3: both directions' stage 1 lies on device 1, where one set of weights serves both."""
    job = job_of("chimera", 3, 4, width=width, clip_norm=0.05)
    program = with_late_sync(lower(both_ways(3, 4), sync="none", width=width, tied=True))
    (run,) = prepare([job], clock="wall", links=[links_of(job)], data=RandomData(), programs=[program])
    trained = pool_of(job.ranks).call(train_on_ranks, run)
    assert worst_difference(trained, reference_of(job, 1)) <= BOUND


def refusal(job: Job) -> str:
    """Why a job cannot run, empty if it can."""
    try:
        prepare([job], clock="wall", links=[links_of(job)], data=RandomData())
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("width", [1, 2])
def test_every_method_and_variant(
    pool_of: Callable[[int], Pool], variant: str, depth: int, width: int
) -> None:
    """N ∈ {1, 3, 4, 5, 8}, both models, tied or not, clipped or not; refusals give a reason."""
    ran = 0
    for count, family, tied, clip in product((1, 3, 4, 5, 8), ("bert", "gpt"), (True, False), (None, 0.05)):
        job = job_of(
            depth=depth,
            micro_batches=count,
            width=width,
            clip_norm=clip,
            model=model_of(family, tied_embeddings=tied),
            **VARIANTS[variant],
        )
        reason = refusal(job)
        if reason:
            assert METHODS[job.schedule.method].title in reason
            continue
        assert_equal(pool_of, job)
        ran += 1
    assert ran >= 8
