"""The data set of a sweep, and the name under which it enters a cell's identity."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bitpipe.models import ModelConfig
from experiments.composing.settings import RunSettings

if TYPE_CHECKING:
    from bitpipe.data.source import Dataset

WITHOUT_DATA = frozenset({"simulate", "emulate"})
"""Backends that train on nothing."""


def dataset_of(settings: RunSettings, model: ModelConfig) -> Dataset:
    """The data set, prepared for ``model`` if it has to be.

    Raises:
        InputError: missing, unreadable, too little text.
    """
    return _open(settings.data_path, settings.data_cache, model)


def data_name(settings: RunSettings, model: ModelConfig, backend: str) -> str:
    """Name and content fingerprint; ``none`` for backends that train on nothing.

    Raises:
        InputError: as :func:`dataset_of`.
    """
    if backend in WITHOUT_DATA:
        return "none"
    dataset = dataset_of(settings, model)
    return f"{dataset.name}-{dataset.fingerprint}"


@lru_cache
def _open(path: Path | None, cache: Path, model: ModelConfig) -> Dataset:
    from bitpipe.data.open import open_dataset

    return open_dataset(path, model, cache=cache)
