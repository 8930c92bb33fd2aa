"""The repository's configuration files, read without Hydra.

``conf/GROUP/NAME.yaml``; a ``defaults`` list of the same group is merged first, as Hydra does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError, choose
from bitpipe.models import ModelConfig
from bitpipe.simulate.calibration import Calibration

CONF = Path(__file__).resolve().parents[2] / "conf"


def names(group: str) -> list[str]:
    """The files of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def read(group: str, name: str) -> dict[str, Any]:
    """One file of a group, or the file at the path ``name``.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    path = Path(name) if name.endswith(".yaml") else CONF / group / f"{name}.yaml"
    if not path.exists():
        choose(group, name, names(group))
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(group, name, f"cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise InputError(group, name, "expected a mapping of keys to values")
    merged: dict[str, Any] = {}
    for base in data.pop("defaults", []):
        if base != "_self_":
            merged |= read(group, str(base))
    return merged | data


def cluster(name: str) -> Cluster:
    """A cluster by name or path."""
    return Cluster.from_mapping(read("cluster", name))


def calibration(name: str) -> Calibration:
    """A calibration by name or path."""
    return Calibration.from_mapping(read("calibration", name))


def model(name: str) -> ModelConfig:
    """A model by name."""
    return ModelConfig(**read("model", name.replace("-", "_")))
