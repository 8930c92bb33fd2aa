"""Every experiment of conf/ can be submitted, as far as a dry run shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEARCHES_LONG = "frontier"
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


@pytest.mark.parametrize(
    "experiment",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == SEARCHES_LONG)) for name in EXPERIMENTS],
)
def test_a_dry_run_with_the_slurm_launcher_shows_its_jobs(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a login node: sbatch is there, and no GPU."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:/usr/bin:/bin")
    chosen = ["hydra/launcher=slurm", "dry_run=true", "draw=false", f"results={tmp_path}"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), f"+experiment={experiment}", *chosen, "-m"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "#SBATCH --nodes=" in done.stdout
    assert not (tmp_path / "slurm").exists()
