"""Bad input: one clear line each, nothing started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from experiments.composing.sweep import Sweep

Plan = Callable[..., Sweep]


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ("method=bitpipe depth=5", "depth=5: BitPipe needs an even depth (nearest: 4 or 6)"),
        ("method=chimera depth=3", "depth=3: Chimera needs an even depth (nearest: 2 or 4)"),
        ("depth=8 width=8", "width*depth=8*8: 64 ranks, but cluster a800 has 32 devices (4 x 8)"),
        (
            "global_batch=34 width=2",
            "global_batch=34: must be a multiple of B·W = 4·2 = 8 (nearest 32 or 40)",
        ),
        ("global_batch=32 micro_batches=4", "B·N·W = 16; give one of the two"),
        ("depth=16 model.layers=20", "chunks=2: depth=16 makes 32 stages, bert_64 has 20 layers"),
        ("depth=4 method.chunks=32", "at most chunks=16"),
        ("model.heads=7", "model.heads=7: must divide model.hidden=2560"),
        ("model.hiden=7 ", "model=hiden"),
        ("method=1f1b_int depth=4 micro_batches=6", "nearest: 4 or 8"),
        ("method.name=bitpip", "did you mean bitpipe?"),
        ("method.placement=w", "placement=w"),
        ("method.sync=egaer", "did you mean eager?"),
        ("method.layout=replica", "did you mean replica_aware?"),
        ("measured=9", "measured=9: from 1 to iterations=1"),
        ("backend=virtual precision=fp16", "precision=fp16: allowed are bf16, fp32, fp64"),
        (
            "backend=emulate backend.options.stage_forward_ms=0",
            "backend.options.stage_forward_ms=0: a positive number of milliseconds",
        ),
        ("backend=emulate backend.options.stage_forward_ms=fast", "a positive number of milliseconds"),
        ("max_lag=-1", "max_lag=-1: a share of an iteration, from 0"),
        ("precision=fp8", "did you mean fp"),
        ("depth=many", "depth=many: a whole number"),
        ("micro_batches=4*dept", "micro_batches=4*dept"),
        ("micro_batches=0", "micro_batches=0"),
        ("data.path=/nowhere/corpus.txt backend=virtual", "data.path=/nowhere/corpus.txt: no such file"),
        ("backend=cuda", "backend=cuda: no GPU is visible here"),
        ("wandb.mode=offlin", "did you mean offline?"),
        ("cluster.device.peak_flops=nan", "cluster.device.peak_flops=nan: must be finite"),
        ("cluster.p2p_inter.bandwidth=inf", "cluster.p2p_inter.bandwidth=inf: must be finite"),
        ("learning_rate=nan", "learning_rate=nan: must be finite"),
        ("watchdog_s=-inf", "watchdog_s=-inf: must be finite"),
        ("seed=-1", "seed=-1: from 0 to 2**63 - 1"),
        ("seed=9223372036854775808", "seed=9223372036854775808: from 0"),
        ("~calibration", "try calibration=physical"),
    ],
)
def test_bad_input_is_one_line_with_what_is_allowed(planned: Plan, overrides: str, line: str) -> None:
    overrides = overrides.replace("model.hiden", "+model.hiden")
    with pytest.raises(InputError) as error:
        planned(overrides)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_every_cell_of_a_sweep_is_checked_before_the_first_runs(planned: Plan, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 of 3 cells cannot run, first: depth=5") as error:
        planned("depth=4", "depth=5", "depth=7")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_grid_search_keeps_impossible_cells_as_results(planned: Plan) -> None:
    sweep = planned("experiment.invalid=record depth=4", "experiment.invalid=record depth=5")
    assert [bool(point.refusal) for point in sweep.points] == [False, True]
    assert [cell.job.schedule.depth for cell in sweep.cells] == [4]


def test_the_largest_seed_is_allowed(planned: Plan) -> None:
    assert planned("seed=9223372036854775807").cells[0].job.seed == 2**63 - 1


@pytest.mark.parametrize(
    ("model", "least"),
    [("bert_tiny", 3), ("bert_tiny +model.next_sentence=true", 5), ("gpt_tiny", 1)],
)
def test_a_sequence_without_a_token_to_predict_is_refused(planned: Plan, model: str, least: int) -> None:
    def plan_with(sequence: int) -> Sweep:
        return planned(f"depth=2 model={model} backend=virtual model.sequence={sequence}")

    plan_with(least)
    for sequence in range(1, least):
        with pytest.raises(InputError, match=f"at least model.sequence={least}"):
            plan_with(sequence)
