"""Every experiment file composes into cells that can run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from experiments.composing.grid import expand
from experiments.composing.sweep import plan
from experiments.running.single import size

FILES = sorted((Path(__file__).resolve().parents[2] / "conf" / "experiment").glob("*.yaml"))


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_every_experiment_composes_validates_and_is_named_after_its_file(
    name: str, load: Callable[[list[str]], DictConfig], tmp_path: Path
) -> None:
    arguments = [f"+experiment={name}"]
    composed = load(arguments)
    sweeper: Any = OmegaConf.to_container(composed.hydra.sweeper)
    jobs = expand(sweeper["params"], sweeper["points"], arguments, OverridesParser.create())
    assert size(composed.hydra.sweeper) == len(jobs)
    few = jobs if len(jobs) <= 24 else jobs[:: len(jobs) // 12]  # long grids: a sample
    sweep = plan(load, [[*job, f"results={tmp_path}"] for job in few])
    assert sweep.experiment == name
    assert sweep.title
    assert all(point.cell.labels for point in sweep.points)
    assert sweep.cells, "not every cell is impossible"
