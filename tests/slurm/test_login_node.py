"""A login node without torch: everything up to the submission works there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_TORCH = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("more", [["model=bert_64"], ["model=gpt_96"], ["method=bitpipe", "repeats=2"]])
def test_a_cuda_sweep_is_shown(more: list[str], tmp_path: Path) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\nexit 1\n")
    sbatch.chmod(0o755)
    here = ["+experiment=table6_ablation", "backend=cuda", "hydra/launcher=slurm", "dry_run=true", "-m"]
    done = run(str(ROOT / "run.py"), *here, *more, f"results={tmp_path}", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert "GPU-hours" in done.stdout


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_a_sweep_is_submitted_and_its_jobs_have_torch(user: User) -> None:
    command = user.command(*TWO_RANKS, "iterations=2", "measured=1", "draw=false")[1:]
    done = run(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 ok" in done.stdout
