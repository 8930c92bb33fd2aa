"""Composes the cells of a sweep quickly.

Hydra takes some 0.15 s for each composition. The cells of a sweep differ in few groups and
otherwise in plain values, so one composition per choice of groups is enough; values are then set
on a copy, as Hydra itself would do at the end.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bitpipe.checkout import ROOT
from experiments.composing.compose import plain, without_hydra

Load = Callable[[list[str]], DictConfig]


class Composer:
    """From overrides to a resolved configuration, without Hydra's own part.

    Args:
        load: Hydra's ``load_sweep_config`` with the sweep's configuration.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._parse = cache(OverridesParser.create().parse_override)
        self._composed: dict[tuple[str, ...], bytes] = {}  # pickles: read much faster than copied

    def __call__(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Compose one cell.

        Raises:
            InputError: an interpolation that leads nowhere.
            HydraException, OmegaConfBaseException: an override that does not fit.
        """
        parsed = [self._parse(override) for override in overrides]
        values = [one for one in parsed if _may_be_value(one)]
        config = self._with([one for one in parsed if one not in values])
        values = [one for one in values if _is_value(config, one)]
        config = self._with([one for one in parsed if one not in values])
        try:
            for one in values:
                OmegaConf.update(config, one.key_or_group, one.value(), merge=True)
        except OmegaConfBaseException:
            self._load(list(overrides))  # words the error as Hydra does for a single cell
            raise
        return plain(config)

    def _with(self, groups: Sequence[Override]) -> DictConfig:
        """A copy of the composition with these overrides."""
        texts = tuple(str(one.input_line) for one in groups)
        if texts not in self._composed:
            self._composed[texts] = pickle.dumps(without_hydra(self._load(list(texts))))
        config: DictConfig = pickle.loads(self._composed[texts])
        return config


def _may_be_value(override: Override) -> bool:
    adds = override.is_add() or override.is_force_add() or override.is_delete()
    return not (adds or override.package or override.key_or_group.startswith(("hydra.", "hydra/")))


def _is_value(config: DictConfig, override: Override) -> bool:
    """Whether an override sets a value; else it chooses a group's file or fits nowhere, as Hydra says."""
    key = override.key_or_group
    if "/" in key or (ROOT / "conf" / key).is_dir():
        return False
    try:
        there = OmegaConf.select(config, key, default=override, throw_on_missing=False)
    except OmegaConfBaseException:  # an interpolation that leads nowhere yet
        return True
    if there is override:
        return "." in key  # a new entry of a table, as experiment.labels
    return not (isinstance(there, DictConfig) and isinstance(override.value(), str))
