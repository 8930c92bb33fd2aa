"""The code that jobs run is the code at submission, and holds no secret."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from slurm import snapshot


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "bitpipe").mkdir(parents=True)
    (root / "bitpipe" / "code.py").write_text("x = 1\n")
    (root / ".gitignore").write_text("ignored/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    return root


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_clean_tree(repository: Path, tmp_path: Path) -> None:
    found = snapshot.take(tmp_path / "sweep" / "code", repository=repository)
    assert found == snapshot.Revision(revision=git(repository, "rev-parse", "HEAD"), dirty=False)
    snapshot.require_clean(found, allow_dirty=False)
    assert not (tmp_path / "sweep" / "dirty.diff").exists()
    assert snapshot.revision(tmp_path / "sweep" / "code") == found  # a snapshot knows where it came from


def test_a_dirty_tree_needs_permission_and_leaves_its_diff(repository: Path, tmp_path: Path) -> None:
    (repository / "bitpipe" / "code.py").write_text("x = 2\n")
    (repository / "bitpipe" / "new.py").write_text("y = 3\n")
    code = tmp_path / "sweep" / "code"
    found = snapshot.take(code, repository=repository)
    with pytest.raises(InputError, match="allow_dirty=true"):
        snapshot.require_clean(found, allow_dirty=False)
    snapshot.require_clean(found, allow_dirty=True)
    assert (code / "bitpipe" / "code.py").read_text() == "x = 2\n"
    assert (code / "bitpipe" / "new.py").exists()
    diff = (tmp_path / "sweep" / "dirty.diff").read_text()
    assert "+x = 2" in diff
    assert "untracked, in the snapshot: bitpipe/new.py" in diff


def test_ignored_and_private_files_stay_out(repository: Path, tmp_path: Path) -> None:
    for name in (".env", ".netrc", "site.yaml", "ignored/big.bin", "bitpipe/server.key"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("private")
    snapshot.take(tmp_path / "code", repository=repository)
    kept = {
        str(path.relative_to(tmp_path / "code")) for path in (tmp_path / "code").rglob("*") if path.is_file()
    }
    assert kept == {".gitignore", "bitpipe/code.py", snapshot.REVISION_FILE}


def test_a_secret_of_the_shell_is_never_copied(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    (repository / "bitpipe" / "code.py").write_text("key = '0123456789abcdef'\n")
    with pytest.raises(InputError, match=r"bitpipe/code\.py"):
        snapshot.take(tmp_path / "code", repository=repository)
    assert not (tmp_path / "code").exists()


def test_without_git_the_known_rooms_are_copied(tmp_path: Path) -> None:
    root = tmp_path / "unpacked"
    (root / "bitpipe" / "__pycache__").mkdir(parents=True)
    (root / "bitpipe" / "code.py").write_text("")
    (root / "bitpipe" / "__pycache__" / "code.pyc").write_text("")
    (root / "results").mkdir()
    assert snapshot.take(tmp_path / "code", repository=root) == snapshot.Revision(revision=None, dirty=None)
    assert (tmp_path / "code" / "bitpipe" / "code.py").exists()
    assert not (tmp_path / "code" / "results").exists()
    assert not list((tmp_path / "code").rglob("__pycache__"))
