"""The grid of an experiment: which jobs a sweep consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydra.core.override_parser.overrides_parser import OverridesParser


def expand(
    params: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    arguments: Sequence[str],
    parser: OverridesParser,
) -> list[list[str]]:
    """Every job's overrides: ``points`` × ``params``, the command line replacing both.

    Args:
        params: key → values separated by commas, swept as a grid.
        points: combinations that no grid describes; each is crossed with ``params``.
        arguments: the command line's overrides.
        parser: reads Hydra's override grammar, quotes included.
    """
    jobs: list[list[str]] = []
    for point in points or [{}]:
        texts = [f"{key}={value}" for key, value in {**params, **point}.items()]
        choices: dict[str, list[str]] = {}
        for override in parser.parse_overrides([*texts, *arguments]):
            key = override.get_key_element()
            name = key.lstrip("+")
            if override.is_sweep_override():
                values = list(override.sweep_string_iterator())
            else:
                values = [override.get_value_element_as_str()]
            choices[name] = [key if key.startswith("~") else f"{key}={value}" for value in values]
        jobs += [list(job) for job in product(*choices.values())]
    return list({tuple(job): job for job in jobs}.values())
