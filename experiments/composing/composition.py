"""Composes the cells of a sweep quickly.

Hydra takes some 0.15 s for each composition. The cells of a sweep differ in few groups and
otherwise in plain values, so one composition per choice of groups is enough; values are then set
on a copy, as Hydra itself would do at the end.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.composing.compose import plain, without_hydra

Load = Callable[[list[str]], DictConfig]


class Composer:
    """From overrides to a resolved configuration, without Hydra's own part.

    Args:
        load: Hydra's ``load_sweep_config`` with the sweep's configuration.
        conf: the folder whose sub-folders are the groups.
    """

    def __init__(self, load: Load, conf: Path) -> None:
        self._load, self._conf = load, conf
        self._parse = cache(OverridesParser.create().parse_override)
        self._composed: dict[tuple[str, ...], bytes] = {}  # pickles: read much faster than copied

    def __call__(self, overrides: Sequence[str]) -> dict[str, Any]:
        """Compose one cell.

        Raises:
            InputError: an interpolation that leads nowhere.
            HydraException, OmegaConfBaseException: an override that does not fit.
        """
        parsed = [self._parse(override) for override in overrides]
        values = [one for one in parsed if self._is_value(one)]
        groups = tuple(str(one.input_line) for one in parsed if not self._is_value(one))
        if groups not in self._composed:
            self._composed[groups] = pickle.dumps(without_hydra(self._load(list(groups))))
        config: DictConfig = pickle.loads(self._composed[groups])
        try:
            for one in values:
                OmegaConf.update(config, one.key_or_group, one.value(), merge=True)
        except OmegaConfBaseException:
            self._load(list(overrides))  # words the error as Hydra does for a single cell
            raise
        return plain(config)

    def _is_value(self, override: Override) -> bool:
        key = override.key_or_group
        sets = not (override.is_add() or override.is_force_add() or override.is_delete() or override.package)
        return sets and not key.startswith(("hydra.", "hydra/")) and not (self._conf / key).is_dir()
