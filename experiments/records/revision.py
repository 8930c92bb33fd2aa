"""Which code this is: one answer for records, manifests and snapshots."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bitpipe.checkout import ROOT

CODE = ("bitpipe", "experiments", "slurm", "hydra_plugins", "analysis", "conf", "run.py", "pyproject.toml")
"""What the code consists of; results, tests, documents and benchmarks change no run."""

NOTE = "REVISION.json"
VARIABLE = "BITPIPE_REVISION"


@dataclass(frozen=True, kw_only=True)
class Revision:
    """Which code.

    Attributes:
        revision: git's, None where nothing tells.
        dirty: whether any file of :data:`CODE` differs from it or is unknown to it.
        problem: why git cannot tell although this is a checkout; one line.
    """

    revision: str | None
    dirty: bool | None
    problem: str = ""


def revision_of(root: Path = ROOT) -> Revision:
    """The revision of a snapshot, which remembers it; of a checkout; else what the environment says.

    ``BITPIPE_REVISION`` (with ``+dirty``) is for installations without git, as in a container's image.
    """
    note = root / NOTE
    if note.exists():
        return Revision(**json.loads(note.read_text()))
    if not (root / ".git").exists():
        told = os.environ.get(VARIABLE)
        known = told.removesuffix("+dirty") if told else None
        return Revision(revision=known, dirty=told.endswith("+dirty") if told else None)
    try:
        head = git(root, "rev-parse", "HEAD").strip()
        return Revision(revision=head, dirty=bool(git(root, "status", "--porcelain", "--", *CODE)))
    except GitFailed as error:
        return Revision(revision=None, dirty=None, problem=str(error))


class GitFailed(Exception):
    """Git cannot answer: one line that says why."""


def git(root: Path, *arguments: str) -> str:
    """Output of a git command about the repository at ``root``, never about one around it.

    Raises:
        GitFailed: no git, a damaged repository, or one that git does not trust.
    """
    # Inside a hook, or by the user's hand, variables may point to another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**inherited, "GIT_CEILING_DIRECTORIES": str(root.resolve().parent), "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, timeout=60, env=environment
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise GitFailed(f"git: {error}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitFailed(lines[0] if lines else f"git {arguments[0]} ended with status {done.returncode}")
    return done.stdout.decode(errors="surrogateescape")
