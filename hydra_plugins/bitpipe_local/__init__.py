"""Two small Hydra plugins: a sweeper for experiment grids, and the local launcher.

Both receive the whole sweep at once, so that every cell is composed and validated before the
first one runs and cells of one shape share their ranks. Neither makes a folder per cell.

No postponed annotations here: Hydra runs plugin modules without naming them in ``sys.modules``,
where dataclasses would look strings up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from bitpipe.errors import InputError
from experiments.composing.config import register
from experiments.composing.grid import expand

PREFIX = "hydra_plugins.bitpipe_"


def check_plugins(config: DictConfig) -> None:
    """Refuse a sweeper or launcher that is not ours.

    Others start cells one by one, wait for what each returns, or write files of their own beside
    the code; here a sweep is checked as a whole and its results are its records.

    Raises:
        InputError: names it; nothing was started or written.
    """
    for part, allowed in (("sweeper", "grid"), ("launcher", "local, slurm")):
        if not str(config.hydra[part].get("_target_")).startswith(PREFIX):
            name = config.hydra.runtime.choices.get(f"hydra/{part}")
            raise InputError(f"hydra/{part}", name, f"allowed are {allowed}", "cells return records only")


class GridSweeper(Sweeper):
    """Expands ``params`` and ``points`` and hands every job to the launcher in one call."""

    def __init__(self, params: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> None:
        self.params, self.points = params, points

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        check_plugins(config)
        self.context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        jobs = expand(self.params or {}, self.points or [], arguments, parser)
        assert self.launcher is not None  # setup made it
        return self.launcher.launch(jobs, initial_job_idx=0)


class LocalLauncher(Launcher):
    """Runs a sweep's blocks on this machine, one after another."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        check_plugins(config)
        self.context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from experiments.composing.sweep import plan
        from experiments.running.local import run_sweep

        loader = self.context.config_loader
        run_sweep(plan(lambda overrides: loader.load_sweep_config(self.config, overrides), job_overrides))
        return []


@dataclass
class GridConfig:
    _target_: str = "hydra_plugins.bitpipe_local.GridSweeper"
    params: dict[str, Any] = field(default_factory=dict)
    points: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class LocalConfig:
    _target_: str = "hydra_plugins.bitpipe_local.LocalLauncher"


register()  # so that hydra.compose works wherever Hydra finds these plugins, as in a notebook
ConfigStore.instance().store(group="hydra/sweeper", name="grid", node=GridConfig, provider="bitpipe")
ConfigStore.instance().store(group="hydra/launcher", name="local", node=LocalConfig, provider="bitpipe")
