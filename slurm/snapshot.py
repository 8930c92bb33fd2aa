"""The code as it is at submission: copied beside the sweep, so that later edits change nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bitpipe.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[1]
REVISION_FILE = "REVISION.json"
ROOMS = ("bitpipe", "experiments", "slurm", "hydra_plugins", "analysis", "conf", "run.py", "pyproject.toml")
"""What a checkout without git is known to consist of."""

PRIVATE = re.compile(r"(^|/)(\.env(\..*)?|\.netrc|.*\.(pem|key)|id_(rsa|ed25519)|site\.yaml)$")
SECRET_NAME = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Revision:
    """Which code: git's revision, and whether the tree differed from it; None without git."""

    revision: str | None
    dirty: bool | None


def revision(repository: Path = REPOSITORY) -> Revision:
    """The revision of a checkout, or of a snapshot (which remembers where it came from)."""
    note = repository / REVISION_FILE
    if note.exists():
        return Revision(**json.loads(note.read_text()))
    head = _git(repository, "rev-parse", "HEAD")
    if head is None:
        return Revision(revision=None, dirty=None)
    return Revision(revision=head.strip(), dirty=bool(_git(repository, "status", "--porcelain")))


def require_clean(found: Revision, *, allow_dirty: bool) -> None:
    """Refuse to submit code that no revision describes.

    Raises:
        InputError: the tree is dirty and that is not allowed.
    """
    if found.dirty and not allow_dirty:
        raise InputError(
            "allow_dirty", "false", "the working tree has uncommitted changes", "commit, or allow_dirty=true"
        )


def take(target: Path, *, repository: Path = REPOSITORY) -> Revision:
    """Copy the code to ``target``, and the uncommitted changes to ``dirty.diff`` beside it.

    Files that look private are left out; ignored files are not part of the code.

    Raises:
        InputError: a file to copy holds the value of a secret variable of this shell.
    """
    found = revision(repository)
    files = list(_code(repository))
    _refuse_secrets(repository, files)
    for name in files:
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repository / name, copy)
    (target / REVISION_FILE).write_text(json.dumps(asdict(found)) + "\n")
    if found.dirty:
        diff = _git(repository, "diff", "HEAD", "--binary") or ""
        new = _git(repository, "ls-files", "--others", "--exclude-standard") or ""
        note = "".join(f"# untracked, in the snapshot: {name}\n" for name in new.splitlines())
        (target.parent / "dirty.diff").write_text(note + diff)
    return found


def secrets(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Values of variables whose name says that they are secret."""
    return [
        value for name, value in environment.items() if SECRET_NAME.search(name) and len(value.strip()) >= 8
    ]


def _code(repository: Path) -> Iterable[str]:
    listed = _git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = [name for name in listed.split("\0") if name and not name.startswith(("tests/", "docs/"))]
    else:
        names = []
        for room in ROOMS:
            root = repository / room
            paths = [root] if root.is_file() else sorted(root.rglob("*"))
            names += [str(p.relative_to(repository)) for p in paths if "__pycache__" not in p.parts]
    return [name for name in names if (repository / name).is_file() and not PRIVATE.search(name)]


def _refuse_secrets(repository: Path, files: Iterable[str]) -> None:
    values = [value.encode() for value in secrets()]
    if not values:
        return
    for name in files:
        content = (repository / name).read_bytes()
        if any(value in content for value in values):
            raise InputError(
                "snapshot", name, "holds the value of a secret variable of this shell", "take it out"
            )


def _git(repository: Path, *arguments: str) -> str | None:
    """Output of a git command; None where there is no git or no repository of its own."""
    if not (repository / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="surrogateescape")
