"""How much a user may still write to a folder: quota where one is told, else the file system's free space."""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may still be written.

    Attributes:
        free: bytes, the lesser of free space and what the quota leaves.
        limited: whether a quota of this user is known.
        found: one phrase for people.
    """

    free: int
    limited: bool
    found: str


def space(folder: Path) -> Space:
    """What this user may still write below an existing folder."""
    free = shutil.disk_usage(folder).free
    on_disk = f"{free / 2**30:.0f} GiB free"
    source, kind = mount_of(folder.resolve(), MOUNTS.read_text() if MOUNTS.exists() else "")
    if kind == "lustre":
        told = _said("lfs", "quota", "-q", "-u", getpass.getuser(), str(folder))
        left = None if told is None else of_lfs(told)
    else:
        told = _said("quota", "--no-wrap", "--raw-grace")
        left = None if told is None else of_quota(told, source)
    if told is None:
        return Space(free=free, limited=False, found=f"{on_disk}; no command here tells of a quota")
    if left is None:
        return Space(free=free, limited=False, found=f"{on_disk}; you have no quota there")
    return Space(
        free=min(free, left), limited=True, found=f"{on_disk}; your quota leaves {left / 2**30:.1f} GiB"
    )


def mount_of(folder: Path, mounts: str) -> tuple[str, str]:
    """Source and type of the file system that holds a folder, from the text of ``/proc/mounts``."""
    best, found = -1, ("", "")
    for line in mounts.splitlines():
        source, point, kind = line.split()[:3]
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
        if folder.is_relative_to(point) and len(point) >= best:  # later mounts hide earlier ones
            best, found = len(point), (source, kind)
    return found


def of_quota(text: str, source: str) -> int | None:
    """Bytes that ``quota --no-wrap`` leaves on a file system; None without a limit there."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == source:
            return _left(*words[1:4])
    return None


def of_lfs(text: str) -> int | None:
    """Bytes that ``lfs quota -q`` leaves; None without a limit. A long name may have a line of its own."""
    words = text.split()
    return _left(*words[1:4]) if len(words) >= 4 else None


def _left(used: str, soft: str, hard: str) -> int | None:
    """From three counts of KiB, of which the first has marks when it is over; 0 is no limit."""
    numbers = [re.sub(r"[*\[\]]", "", word) for word in (used, soft, hard)]
    if not all(number.isdigit() for number in numbers):
        return None
    taken, *limits = map(int, numbers)
    tightest = min((limit for limit in limits if limit), default=None)
    return None if tightest is None else max(0, tightest - taken) * KIB


def _said(*command: str) -> str | None:
    """What a command prints; None if it is not there, fails to start or does not answer."""
    if not shutil.which(command[0]):
        return None
    try:  # quota's exit status says whether a limit is exceeded
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
