"""What a sweep's cells may differ in, over every key of the configuration; and what follows for blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from bitpipe.errors import InputError
from experiments.composing.compose import plain
from experiments.composing.config import OF_A_CELL
from experiments.composing.sweep import Sweep, plan

Plan = Callable[..., Sweep]
Load = Callable[[list[str]], DictConfig]
BASE = ["depth=4", "model=bert_tiny", "backend=simulate"]

SECOND = {
    "results": "elsewhere",
    "experiment.title": "another",
    "experiment.invalid": "record",
    "scale": "fit",
    "wandb.mode": "offline",
    "wandb.entity": "team",
    "wandb.tags": "[x]",
    "site": "another.yaml",
    "repeats": "2",
    "canary": "true",
    "preflight": "true",
    "max_gpu_hours": "3",
}
"""A second value where none follows from the first one's type."""


def keys_of(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if key in OF_A_CELL:
            continue
        if isinstance(value, Mapping) and value:
            yield from keys_of(f"{key}.", value)
        else:
            yield key, value


def second(key: str, value: Any) -> str:
    if key in SECOND:
        return SECOND[key]
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, (int, float)):
        return str(value + 1)
    if isinstance(value, list):
        return "[x]"
    return "another"


def test_every_key_is_a_cells_or_has_one_value_in_a_sweep(load: Load, tmp_path: Path) -> None:
    """A key added later is covered: unless it is declared a cell's own, two values are refused."""
    config = plain(load(BASE))
    keys = dict(keys_of("", config))
    assert {"results", "watchdog_s", "wandb.project", "data.cache", "allow_dirty"} <= keys.keys()
    for key, value in keys.items():
        change = f"{key}={second(key, value)}"
        jobs = [[*BASE, f"results={tmp_path}"], [*BASE, f"results={tmp_path}", change]]
        with pytest.raises(InputError, match="one value for all cells of a sweep") as caught:
            plan(load, jobs)
        assert caught.value.key == key
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir()), "nothing was started"


DIFFERENT = {
    "method": "method=dapple",
    "model": "model.layers=12",
    "cluster": "cluster.device.peak_flops=1e13",
    "backend": "backend=virtual",
    "calibration": "calibration=physical",
    "depth": "depth=2",
    "width": "width=2",
    "micro_batch_size": "micro_batch_size=1",
    "micro_batches": "micro_batches=12",
    "global_batch": "global_batch=64",
    "iterations": "iterations=2",
    "measured": "iterations=2 measured=2",
    "precision": "precision=bf16",
    "learning_rate": "learning_rate=1e-3",
    "clip_norm": "clip_norm=1",
    "seed": "seed=1",
}


@pytest.mark.parametrize("key", sorted(OF_A_CELL - {"data.path", "experiment.labels"}))
def test_a_cells_own_key_is_in_its_identity(key: str, planned: Plan) -> None:
    base = " ".join(BASE)
    one, other = planned(base, f"{base} {DIFFERENT[key]}").points
    assert one.cell.id != other.cell.id


def test_a_label_names_a_cell_and_is_not_its_identity(planned: Plan) -> None:
    base = " ".join(BASE)
    one, other = planned(base, f"{base} experiment.labels={{x:1}}").points
    assert one.cell.id == other.cell.id


def test_every_cell_trains_on_its_own_text(planned: Plan, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"The {name} of it is a word or two. " * 400)
    base = f"{' '.join(BASE)} backend=virtual data.cache={tmp_path / 'cache'}"
    sweep = planned(*(f"{base} data.path={tmp_path / name}.txt" for name in ("a", "b")))
    assert [cell.data.split("-")[0] for cell in sweep.cells] == ["a.txt", "b.txt"]
    assert [block.settings.data_path.name for block in sweep.blocks] == ["a.txt", "b.txt"]  # type: ignore[union-attr]


def test_every_backend_has_its_own_repeats_and_its_own_wandb_mode(planned: Plan) -> None:
    base = "depth=4 model=bert_tiny repeats=3"
    sweep = planned(f"{base} backend=simulate", f"{base} backend=virtual")
    ways = {block.backend: block.settings for block in sweep.blocks}
    assert (ways["simulate"].repeats, ways["virtual"].repeats, sweep.repeats) == (1, 3, 3)
    assert (ways["simulate"].wandb.mode, ways["virtual"].wandb.mode) == ("disabled", "offline")


def test_one_cell_is_not_run_in_two_ways(planned: Plan) -> None:
    base = "depth=4 model=bert_tiny backend=virtual"
    with pytest.raises(InputError, match="would be run in two ways"):
        planned(base, f"{base} backend.wandb=disabled")


@pytest.mark.parametrize(
    "change",
    [
        "cluster.device.peak_flops=1e13",
        "cluster.devices_per_node=2 cluster.nodes=2",
        "calibration=physical",
        "micro_batch_size=2",
        "iterations=7",
        "seed=3",
    ],
)
def test_what_a_block_sets_up_once_is_the_same_for_all_of_its_cells(change: str, planned: Plan) -> None:
    base = "depth=4 model=bert_tiny backend=virtual"
    assert len(planned(base, f"{base} {change}").blocks) == 2


@pytest.mark.parametrize("change", ["method=dapple", "method.sync=late", "learning_rate=1e-3", "clip_norm=1"])
def test_what_is_compared_shares_a_block(change: str, planned: Plan) -> None:
    base = "depth=4 model=bert_tiny backend=virtual"
    assert len(planned(base, f"{base} {change}").blocks) == 1
