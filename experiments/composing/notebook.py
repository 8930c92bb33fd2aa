"""Sweeps from a notebook or a script, without a command line: :func:`sweep_of`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bitpipe.checkout import ROOT
from experiments.composing.command_line import prepare
from experiments.composing.sweep import Sweep, plan

if TYPE_CHECKING:
    from omegaconf import DictConfig

LOCAL = "hydra/launcher=local"


def sweep_of(*overrides: str) -> Sweep:
    """Compose and validate what ``python run.py OVERRIDES -m`` would run here.

    Args:
        overrides: as on the command line: ``"+experiment=table6_ablation"``, ``"depth=4,8"``.

    Raises:
        InputError: a cell cannot run; nothing was started.
        HydraException: an override that does not fit.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    def load(texts: list[str]) -> DictConfig:
        return compose("config", texts, return_hydra_config=True)

    # A notebook may have initialised Hydra for something of its own, and goes on with it afterwards.
    theirs = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            ready = prepare((*overrides, LOCAL, "--multirun"), ROOT / "conf")
            return plan(load, jobs_of(load, [a for a in ready.arguments if a not in (LOCAL, "--multirun")]))
    finally:
        GlobalHydra.instance().hydra = theirs


def jobs_of(load: Callable[[list[str]], DictConfig], overrides: Sequence[str]) -> list[list[str]]:
    """Every job's overrides: an experiment's own grid and the command line's.

    Args:
        load: Hydra's ``compose`` with its own part.
        overrides: as on the command line.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    from experiments.composing.grid import expand

    parser = OverridesParser.create()
    single = [
        str(one.input_line) for one in parser.parse_overrides(list(overrides)) if not one.is_sweep_override()
    ]
    sweeper = OmegaConf.to_container(load(single).hydra.sweeper)
    assert isinstance(sweeper, dict)
    return expand(sweeper["params"] or {}, sweeper["points"] or [], overrides, parser)
