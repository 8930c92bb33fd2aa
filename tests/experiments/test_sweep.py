"""From a grid to cells, blocks and ids."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from experiments.composing.sweep import Sweep

Plan = Callable[..., Sweep]

VARIANTS = ["bitpipe", "bitpipe_without_v", "bitpipe_without_e", "bitpipe_without_m"]


def test_table_6_is_24_cells_in_6_blocks_of_three_shapes(planned: Plan) -> None:
    grid = product((4, 8, 16), ("depth", "4*depth"), VARIANTS)
    sweep = planned(
        *(f"+experiment=table6_ablation depth={d} micro_batches={n} method={m}" for d, n, m in grid)
    )
    assert len(sweep.cells) == len({cell.id for cell in sweep.cells}) == 24
    assert [str(block.shape) for block in sweep.blocks] == ["1x4", "1x4", "1x8", "1x8", "2x8", "2x8"]
    assert all(len(block.cells) == 4 for block in sweep.blocks)
    assert sweep.experiment == "table6_ablation"
    labels = [cell.labels["variant"] for cell in sweep.blocks[0].cells]
    assert labels == ["full", "without_v", "without_e", "without_m"]
    batches = [cell.job.global_batch for cell in sweep.cells[::4]]
    assert batches == [16, 64, 32, 128, 64, 256]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("micro_batches=4*depth depth=4", "micro_batches=16 depth=4"),
        ("global_batch=64 depth=4", "micro_batches=16 depth=4"),
        ("width=32//depth depth=8", "width=4 depth=8"),
        ("depth=8 cluster.nodes=2", "depth=8"),
        ("depth=8 experiment.name=fig9 experiment.labels={x:1}", "depth=8"),
        ("depth=8 wandb.mode=offline rerun=true", "depth=8"),
    ],
)
def test_what_does_not_change_the_result_does_not_change_the_id(planned: Plan, one: str, other: str) -> None:
    assert planned(one).cells[0].id == planned(other).cells[0].id


@pytest.mark.parametrize(
    "change",
    ["depth=4", "method=dapple", "method.sync=late", "seed=1", "cluster=a100", "model.layers=32", "width=2"],
)
def test_what_changes_the_result_changes_the_id(planned: Plan, change: str) -> None:
    assert planned(f"depth=8 {change}").cells[0].id != planned("depth=8").cells[0].id


def test_method_files_say_what_the_methods_say(planned: Plan) -> None:
    """Layout and sync are facts of a method; its file must not contradict them."""
    from bitpipe.schedule import METHODS

    for name, method in METHODS.items():
        cell = planned(f"method={name} depth=4 micro_batches={method.nearest(4, 4)}").cells[0]
        assert cell.job.layout == method.layout, name
        assert cell.job.sync == method.sync_mode, name
        assert cell.job.schedule.placement in (None, method.placements[0]), name


def test_stamps_are_unique(planned: Plan) -> None:
    assert len({planned("depth=4").stamp for _ in range(5)}) == 5


def test_an_edited_schedule_of_ones_own_is_another_cell(planned: Plan, tmp_path: Path) -> None:
    file = tmp_path / "pair.txt"
    first = "F0@0d F1@0d B0@0d B1@0d\n"

    def id_with(second: str) -> str:
        file.write_text(first + second)
        return planned(f"method=own method.name=file:{file} depth=2 micro_batches=2").cells[0].id

    assert id_with("F0@1d B0@1d F1@1d B1@1d") == id_with("F0@1d B0@1d F1@1d B1@1d")
    assert id_with("F0@1d B0@1d F1@1d B1@1d") != id_with("F0@1d F1@1d B0@1d B1@1d")
