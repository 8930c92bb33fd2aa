"""Compose configurations as the launchers do, without a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from experiments.composing import config
from experiments.composing.sweep import Sweep, plan

CONF = Path(__file__).resolve().parents[2] / "conf"
Plan = Callable[..., Sweep]


@pytest.fixture(scope="session")
def load() -> Iterator[Callable[[list[str]], DictConfig]]:
    """From overrides to a configuration."""
    config.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield lambda overrides: compose("config", overrides, return_hydra_config=True)


@pytest.fixture
def planned(load: Callable[[list[str]], DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plan a sweep of jobs given as strings of overrides; results go to a fresh folder."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the same on every machine

    def of(*jobs: str) -> Sweep:
        return plan(load, [[*job.split(), f"results={tmp_path}"] for job in jobs])

    return of
