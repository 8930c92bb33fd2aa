"""The code as it is at submission: copied beside the sweep, so that later edits change nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError
from experiments.records.revision import CODE, NOTE, GitFailed, Revision, git, revision_of
from experiments.records.store import NotWritten, write_json, write_text

PRIVATE = re.compile(r"(^|/)(\.env(\..*)?|\.netrc|.*\.(pem|key)|id_(rsa|ed25519)|site\.yaml)$")
SECRET_NAME = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)


def require_clean(found: Revision, *, allow_dirty: bool) -> None:
    """Refuse to submit code that no revision describes.

    Raises:
        InputError: the tree is dirty, or git cannot tell, and that is not allowed.
    """
    if allow_dirty or not (found.dirty or found.problem):
        return
    if found.problem:
        raise InputError(
            "allow_dirty",
            "false",
            f"which code this is cannot be told: {found.problem}",
            "mend that, or allow_dirty=true",
        )
    raise InputError(
        "allow_dirty", "false", "the working tree has uncommitted changes", "commit, or allow_dirty=true"
    )


def take(target: Path, *, repository: Path = ROOT) -> Revision:
    """Copy the code to ``target``, and the uncommitted changes to ``dirty.diff`` beside it.

    Files that look private are left out; ignored files are not part of the code.

    Raises:
        InputError: a file to copy holds the value of a secret variable of this shell.
        NotWritten: the file system refuses.
    """
    found = revision_of(repository)
    files = dict(_code(repository))
    refuse_secrets(files)
    for name, source in files.items():
        copy(source, target / name)
    write_json(target / NOTE, asdict(found))
    if found.dirty:
        diff = git(repository, "diff", "HEAD", "--binary", "--", *CODE)
        new = git(repository, "ls-files", "--others", "--exclude-standard", "--", *CODE)
        note = "".join(f"# untracked, in the snapshot: {name}\n" for name in new.splitlines())
        write_text(target.parent / "dirty.diff", note + diff)
    return found


def copy(source: Path, target: Path) -> None:
    """Copy one file, what a link points to in its place.

    Raises:
        NotWritten: the file system refuses.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    except OSError as error:
        raise NotWritten(target, error.strerror or str(error)) from error


def secrets(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Values of variables whose name says that they are secret."""
    return [
        value for name, value in environment.items() if SECRET_NAME.search(name) and len(value.strip()) >= 8
    ]


def _code(repository: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of the code: what git knows and does not ignore; without git, all that is there."""
    for name in _listed(repository):
        path = repository / name
        below = sorted(path.rglob("*")) if path.is_dir() else [path]  # a link to a folder is one name
        for file in below:
            inside = str(Path(name) / file.relative_to(path))
            if file.is_file() and "__pycache__" not in file.parts and not PRIVATE.search(inside):
                yield inside, file


def _listed(repository: Path) -> Iterable[str]:
    if (repository / ".git").exists():
        try:
            arguments = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *CODE)
            return [name for name in git(repository, *arguments).split("\0") if name]
        except GitFailed:  # submitted all the same, as asked: then all that is there
            pass
    return [name for name in CODE if (repository / name).exists()]


def refuse_secrets(files: Mapping[str, Path]) -> None:
    """Refuse to copy a file that holds a secret.

    Raises:
        InputError: it holds the value of a secret variable of this shell.
    """
    values = [value.encode() for value in secrets()]
    if not values:
        return
    for name, file in files.items():
        content = file.read_bytes()
        if any(value in content for value in values):
            raise InputError(
                "snapshot", name, "holds the value of a secret variable of this shell", "take it out"
            )
