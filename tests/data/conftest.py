"""A prepared built-in corpus per family, shared by the tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.models import ModelConfig


def small(family: str, **changes: int | str | bool) -> ModelConfig:
    values = {
        "name": "test",
        "family": family,
        "layers": 2,
        "heads": 2,
        "hidden": 16,
        "sequence": 32,
        "vocabulary": 512,
    }
    return ModelConfig(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
