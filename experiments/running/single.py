"""One cell, without ``-m``."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from omegaconf import DictConfig, OmegaConf

from experiments.composing.config import ADHOC
from experiments.composing.sweep import plan
from experiments.running.local import run_sweep, say


def run_single(composed: DictConfig) -> None:
    """Run the one cell that is configured; if it is one of an experiment's many, say so.

    Raises:
        InputError: it cannot run.
        SweepFailed: it failed.
    """
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    sweep = plan(lambda _: composed, [list(hydra.overrides.task)])
    cells = size(hydra.sweeper)
    if cells > 1:
        say(
            f"{sweep.experiment} has {cells} cells; this runs one cell of its settings: "
            f"{sweep.points[0].cell}. All: add -m"
        )
        # It need not be a point of the grid, and as a sweep it would stand in the way of the whole one.
        sweep = replace(sweep, experiment=ADHOC)
    run_sweep(sweep)


def size(sweeper: DictConfig) -> int:
    """How many cells an experiment's own grid has."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values = OmegaConf.to_container(sweeper)
    assert isinstance(values, dict)
    params, points = values.get("params") or {}, values.get("points") or []
    parser = OverridesParser.create()
    total = 0
    for point in points or [{}]:
        overrides = parser.parse_overrides([f"{key}={value}" for key, value in {**params, **point}.items()])
        total += prod(len(list(o.sweep_iterator())) for o in overrides if o.is_sweep_override())
    return total
