"""The experiments at the paper's scale: their grids are the paper's, and share cells where it does."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from experiments.cell import Cell
from experiments.composing.grid import expand
from experiments.composing.sweep import Sweep, plan

PAPER = Path(__file__).resolve().parents[2] / "results" / "paper"


Plan = Callable[..., Sweep]


@pytest.fixture(scope="session")
def planned(load: Callable[[list[str]], DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Plan the whole sweep of an experiment, once."""
    folder = tmp_path_factory.mktemp("results")

    @cache
    def of(experiment: str, *more: str) -> Sweep:
        arguments = [f"+experiment={experiment}", *more]
        sweeper: Any = OmegaConf.to_container(load(arguments).hydra.sweeper)
        jobs = expand(sweeper["params"], sweeper["points"], arguments, OverridesParser.create())
        return plan(load, [[*job, f"results={folder}"] for job in jobs])

    return of


def cells(sweep: Sweep) -> list[Cell]:
    return [point.cell for point in sweep.points]


def test_a_cluster_that_is_too_small_is_another_cell_than_one_that_is_large_enough(planned: Plan) -> None:
    """An impossible cell is a result, and must not take the record of a possible one."""
    cell = cells(planned("fig9ab_throughput_pp"))[0]
    larger = replace(cell, cluster=replace(cell.cluster, nodes=4))
    smaller = replace(cell, cluster=replace(cell.cluster, devices_per_node=4))
    assert cell.id == larger.id
    assert smaller.id != replace(smaller, cluster=replace(smaller.cluster, nodes=2)).id


def test_settings_that_figures_share_are_one_cell(planned: Plan) -> None:
    """C25: Table 6's full D=8 rows, Fig. 9a's B̂ = 32 and 128, and Fig. 9c on 8 GPUs."""
    bars = {cell.id for cell in cells(planned("fig9ab_throughput_pp"))}
    assert bars == {cell.id for cell in cells(planned("fig8_memory_pp"))}
    scaled = [c for c in cells(planned("fig9cd_throughput_dp")) if c.job.ranks == 8]
    shared = [c for c in scaled if c.job.schedule.method == "bitpipe"]
    assert shared
    assert {c.id for c in shared} <= bars
    full = [
        c
        for c in cells(planned("table6_ablation"))
        if c.labels["variant"] == "full" and c.job.schedule.depth == 8
    ]
    assert len(full) == 2
    assert {c.id for c in full} <= bars
    found = {c.id for c in cells(planned("fig10_memory_dp"))}
    assert found <= {c.id for c in cells(planned("fig9cd_throughput_dp"))}


def test_figure_9_runs_the_paper_s_choices_of_table_5(planned: Plan) -> None:
    with (PAPER / "table5_best.csv").open() as file:
        printed = Counter(
            (
                row["model"].replace("-", "_"),
                row["method"].replace("-", "_"),
                int(row["data_parallel"]),
                int(row["depth"]),
                int(row["micro_batch"]),
            )
            for row in csv.DictReader(file)
        )
    ours = Counter(
        (c.job.model.name, c.job.schedule.method, c.job.width, c.job.schedule.depth, c.job.micro_batch_size)
        for c in cells(planned("fig9cd_throughput_dp"))
        if c.labels["reading"] == "fixed_batch"
    )
    assert ours == printed


@pytest.mark.slow
@pytest.mark.parametrize(("model", "per_gpu"), [("bert_64", 4), ("gpt_96", 1)])
def test_the_search_covers_the_printed_space_under_both_readings(
    planned: Plan, model: str, per_gpu: int
) -> None:
    with (PAPER / "table5_space.csv").open() as file:
        space = {
            row["parameter"]: {int(value) for value in row["candidates"].split()}
            for row in csv.DictReader(file)
            if row["model"].replace("-", "_") == model
        }
    ours = [c for c in cells(planned("table5_search")) if c.job.model.name == model]
    wanted = {
        (w, d, b)
        for w in space["data_parallel"]
        for d in space["depth"]
        for b in space["micro_batch"]
        if w * d in (8, 16, 32)
    }
    for reading in ("fixed_batch", "n_is_d"):
        read = [c for c in ours if c.labels["reading"] == reading]
        assert {(c.job.width, c.job.schedule.depth, c.job.micro_batch_size) for c in read} == wanted
        assert Counter(c.job.schedule.method for c in read) == dict.fromkeys(
            ("dapple", "1f1b_int", "mixpipe", "bitpipe"), len(wanted)
        )
    assert all(
        c.job.global_batch == per_gpu * c.job.ranks
        for c in ours
        if c.labels["reading"] == "fixed_batch" and "global_batch" not in c.options
    )


def test_cells_beyond_one_node_use_the_calibration_that_saw_two(planned: Plan) -> None:
    for experiment in ("fig9cd_throughput_dp", "fig11_hyperparameters"):
        for cell in cells(planned(experiment)):
            expected = "full_cells_two_nodes" if cell.layout.nodes > 1 else "full_cells"
            assert cell.calibration is not None
            assert cell.calibration.name == expected, str(cell)


@pytest.mark.slow
def test_the_planner_uses_every_device_and_lists_what_cannot_be(planned: Plan) -> None:
    sweep = planned("plan", "cluster.nodes=1", "global_batch=32")
    possible = [point.cell for point in sweep.points if point.refusal is None]
    assert {cell.job.ranks for cell in possible} == {8}
    assert any(point.refusal for point in sweep.points)
