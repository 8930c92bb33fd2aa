"""A results folder that cannot be written to, or is full: one line, and nothing runs that nobody knows."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_user import TWO_RANKS, User
from some_blocks import block

from experiments.records.revision import ROOT
from experiments.records.store import NotWritten
from slurm import client, commands, snapshot, submit
from slurm.folder import SweepFolder
from slurm.in_flight import alone
from slurm.site import Site
from slurm.testcluster import TestCluster


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for little."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), open(folder / "filling", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_no_room_for_the_code(full: Path) -> None:
    folder = SweepFolder.create(full, "e", "s")
    with pytest.raises(NotWritten, match="No space left"):
        snapshot.take(folder.code, repository=ROOT)


def test_no_room_for_ids_cancels_what_was_just_submitted(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last moment at which a disk can fill: sbatch has accepted, and nobody knows the job."""
    noted = tmp_path / "noted"
    for name in ("sbatch", "scancel"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} $1 >> {noted}\necho "Submitted batch job 7"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    folder = SweepFolder.create(tmp_path / "results", "e", "s")
    wanted = submit.planned([block()], Site(), submit.Options(), max_array_size=10)
    folder.describe(wanted.blocks, {})
    folder.code.mkdir()
    fill(full)
    (folder.path / "jobs.jsonl").symlink_to(full / "jobs.jsonl")
    with pytest.raises(NotWritten, match=r"jobs\.jsonl.*No space left.*just submitted are cancelled"):
        submit.submit(folder, wanted, Site(), lambda line: None)
    assert noted.read_text().splitlines()[-1] == "scancel 7"


def test_no_room_for_the_callable(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "srun").symlink_to("sbatch")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    folder = SweepFolder.create(full, "e", "s")
    wanted = submit.planned([block()], Site(), submit.Options(), max_array_size=10)
    fill(full)
    with pytest.raises(NotWritten, match="No space left"):
        submit.submit(folder, wanted, Site(), lambda line: None)
    assert folder.jobs() == []


@pytest.mark.parametrize("where", ["/proc/nowhere", "/dev/null/results", "/sys/results"])
def test_a_folder_that_nothing_can_be_written_to(where: str) -> None:
    for attempt in (
        lambda: SweepFolder.create(Path(where), "e", "s"),
        lambda: alone(Path(where), print).__enter__(),
    ):
        with pytest.raises(NotWritten) as caught:
            attempt()
        assert str(caught.value).startswith(f"results: {where}")
        assert "\n" not in str(caught.value)


def test_commands_end_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "call", lambda *command, **more: "")
    for command in (["status"], ["collect"], ["requeue"], ["cancel"]):
        assert commands.main([*command, "--results", "/proc/nowhere"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slurm
@pytest.mark.timeout(200)
def test_a_sweep_into_such_a_folder_is_one_line_and_submits_nothing(
    user: User, on_cluster: TestCluster, full: Path
) -> None:
    for results in ("/proc/nowhere", str(full)):
        done = user.run(*TWO_RANKS, f"results={results}")
        assert done.returncode in (1, 2), done.stdout
        assert "cannot be written" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert not on_cluster.client("squeue", "-h").stdout
