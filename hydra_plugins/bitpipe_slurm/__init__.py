"""The launcher that Hydra knows as ``slurm``; everything it does is in the package :mod:`slurm`.

No postponed annotations here, for the reason given in ``hydra_plugins/bitpipe_local``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.bitpipe_local import check_plugins


class SlurmLauncher(Launcher):
    """Submits a sweep as job arrays, one per resource shape."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        check_plugins(config)
        self.context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from experiments.composing.sweep import plan
        from slurm.launch import launch
        from slurm.submit import Options

        loader = self.context.config_loader
        sweep = plan(
            lambda overrides: loader.load_sweep_config(self.config, overrides),
            job_overrides,
            launcher="slurm",
        )
        launch(sweep, Options.of(sweep.config))
        return []


@dataclass
class SlurmConfig:
    _target_: str = "hydra_plugins.bitpipe_slurm.SlurmLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=SlurmConfig, provider="bitpipe")
