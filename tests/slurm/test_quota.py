"""What a user may still write, from what quota commands print; without such a command it is said so."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm import quota
from slurm.quota import mount_of, of_lfs, of_quota, space

QUOTA = """\
Disk quotas for user ann (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/home  1024    2048    4096       0      10       0       0       0
  /dev/sdb1  9000*   8192    9216  604800       1       0       0       0
  /dev/sdc1  1024       0       0       0       1       0       0       0
"""


@pytest.mark.parametrize(("source", "left"), [
    ("server:/home", 1 << 20), ("/dev/sdb1", 0), ("/dev/sdc1", None), ("/dev/sdd1", None),
])  # fmt: skip
def test_the_tighter_limit_counts_and_0_is_none(source: str, left: int | None) -> None:
    assert of_quota(QUOTA, source) == left
    assert of_quota("Disk quotas for user root (uid 0): none\n", source) is None


@pytest.mark.parametrize(("text", "left"), [
    ("/lustre 1024 0 2048 - 5 0 0 -", 1 << 20),
    ("/a/very/long/mount/point\n   3000* 2048 4096 6d 5 0 0 -", 0),
    ("/lustre [1024] 0 0 - 5 0 0 -", None),
    ("", None),
])  # fmt: skip
def test_lustre(text: str, left: int | None) -> None:
    assert of_lfs(text) == left


def test_the_innermost_and_newest_mount_holds_a_folder() -> None:
    mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/x /data nfs rw 0 0\n/dev/sdb1 /data/my\\040disk xfs rw 0 0\n"
    assert mount_of(Path("/data/a"), mounts) == ("server:/x", "nfs")
    assert mount_of(Path("/data/my disk/a"), mounts) == ("/dev/sdb1", "xfs")
    assert mount_of(Path("/database"), mounts) == ("/dev/sda1", "ext4")


def test_the_command_on_the_path_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text("server:/home / nfs rw 0 0\n")
    monkeypatch.setattr(quota, "MOUNTS", tmp_path / "mounts")
    monkeypatch.setenv("PATH", str(tmp_path))
    without = space(tmp_path)
    assert not without.limited
    assert "no command here tells of a quota" in without.found
    command = tmp_path / "quota"
    command.write_text(f"#!/bin/sh\nwhile read -r line; do echo \"$line\"; done <<'X'\n{QUOTA}X\nexit 1\n")
    command.chmod(0o755)
    limited = space(tmp_path)
    assert (limited.limited, limited.free) == (True, 1 << 20)
    assert "your quota leaves 0.0 GiB" in limited.found
