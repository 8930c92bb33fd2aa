"""The repository's configuration files, read without Hydra.

``conf/GROUP/NAME.yaml``; a ``defaults`` list of the same group is merged first, as Hydra does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bitpipe.checkout import ROOT
from bitpipe.cluster import Cluster
from bitpipe.errors import InputError, choose
from bitpipe.models import ModelConfig
from bitpipe.simulate.calibration import Calibration

CONF = ROOT / "conf"


def names(group: str) -> list[str]:
    """The files of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def read(group: str, name: str) -> dict[str, Any]:
    """One file of a group, or the file at the path ``name``.

    Raises:
        InputError: there is none, and the message names the nearest; it holds no mapping; its
            ``defaults`` are no list of names, or lead back to itself.
    """
    return _read(group, name, {})


def _read(group: str, name: str, above: dict[Path, str]) -> dict[str, Any]:
    """``above``: the files whose defaults led here, in order, and the names they went by."""
    path = Path(name) if name.endswith(".yaml") else CONF / group / f"{name}.yaml"
    try:
        if not path.exists():
            choose(group, name, names(group))
        if not path.is_file():
            raise InputError(group, name, "expected a regular file")
        if path.resolve() in above:
            raise InputError(group, name, f"its defaults form a cycle: {' → '.join((*above.values(), name))}")
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputError(group, name, f"cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise InputError(group, name, "expected a mapping of keys to values")
    defaults = data.pop("defaults", [])
    if not isinstance(defaults, list) or not all(isinstance(base, str) for base in defaults):
        raise InputError(f"{group}.defaults", defaults, "expected a list of names", f"in {name}")
    merged: dict[str, Any] = {}
    for base in defaults:
        if base != "_self_":
            merged |= _read(group, base, above | {path.resolve(): name})
    return merged | data


def cluster(name: str) -> Cluster:
    """A cluster by name or path."""
    return Cluster.from_mapping(read("cluster", name))


def calibration(name: str) -> Calibration:
    """A calibration by name or path."""
    return Calibration.from_mapping(read("calibration", name))


def model(name: str) -> ModelConfig:
    """A model by name (``-`` for ``_`` too, as papers write them) or path."""
    file = name if name.endswith(".yaml") else name.replace("-", "_")
    return ModelConfig.from_mapping(read("model", file))
