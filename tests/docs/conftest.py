"""A copy of the tree in which the documentation's commands run, as after ``make install``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLURM = ("sbatch", "srun", "sinfo", "squeue", "scontrol", "scancel", "sacct")
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "*.egg-info", "data", "cells", "sweeps", "outputs", "multirun", "site.yaml", "tests"
)


@pytest.fixture(scope="session")
def without_slurm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A search path with all commands of this machine but Slurm's, so that sweeps run here."""
    folder = tmp_path_factory.mktemp("bin")
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for tool in Path(place).glob("*") if place and Path(place).is_dir() else ():
            link = folder / tool.name
            if tool.name not in SLURM and not link.is_symlink():
                link.symlink_to(tool)
    return os.pathsep.join([str(Path(sys.executable).parent), str(folder)])


@pytest.fixture
def shell(tmp_path: Path, without_slurm: str) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Runs a block of a language in one fresh copy of the tree, one block after another."""
    tree = tmp_path / "bitpipe-bench"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    (tree / "tests").mkdir()  # a worked example may add one; ours are not for it to run
    environment = {
        "PATH": without_slurm,
        "HOME": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
        "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", str(Path.home() / ".config" / "matplotlib")),
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",
    }

    def run(language: str, text: str) -> subprocess.CompletedProcess[str]:
        command = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[language]
        return subprocess.run(
            [*command, text],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )

    return run
