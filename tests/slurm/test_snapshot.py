"""The code that jobs run is the code at submission, and holds no secret."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from experiments.records.revision import CODE, NOTE, ROOT, Revision, revision_of
from experiments.records.store import NotWritten
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
    assert found == Revision(revision=git(repository, "rev-parse", "HEAD"), dirty=False)
    snapshot.require_clean(found, allow_dirty=False)
    assert not (tmp_path / "sweep" / "dirty.diff").exists()
    assert revision_of(tmp_path / "sweep" / "code") == found  # a snapshot knows where it came from


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
    assert kept == {"bitpipe/code.py", NOTE}


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
    assert snapshot.take(tmp_path / "code", repository=root) == Revision(revision=None, dirty=None)
    assert (tmp_path / "code" / "bitpipe" / "code.py").exists()
    assert not (tmp_path / "code" / "results").exists()
    assert not list((tmp_path / "code").rglob("__pycache__"))


def test_results_benchmarks_tests_and_documents_stay_out_and_are_no_change_of_the_code(
    repository: Path, tmp_path: Path
) -> None:
    for name in ("results/bench/a.csv", "benchmarks/b.py", "tests/t.py", "docs/d.md", "multirun.yaml"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("x")
    assert snapshot.take(tmp_path / "code", repository=repository).dirty is False
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == [NOTE, "bitpipe"]


def test_the_snapshot_of_this_repository_is_small(tmp_path: Path) -> None:
    snapshot.take(tmp_path / "code", repository=ROOT)
    files = [path for path in (tmp_path / "code").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4 << 20
    assert {path.relative_to(tmp_path / "code").parts[0] for path in files} <= {*CODE, NOTE}


def _damaged_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".git" / "index").write_bytes(b"DIRC damaged")


def _no_head(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".git" / "HEAD").unlink()


def _no_git(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def _missing_object(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in sorted((root / ".git" / "objects").rglob("*")):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_damaged_index, _no_head, _no_git, _missing_object])
def test_git_that_fails_is_neither_clean_nor_silent(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: object
) -> None:
    """No revision is told, not even that of a repository around this one; submission is refused."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    (repository / "bitpipe" / "new.py").write_text("y = 3\n")
    harm(repository, monkeypatch)  # type: ignore[operator]
    found = revision_of(repository)
    assert (found.revision, found.dirty is False) == (None, False)
    assert found.problem
    assert "\n" not in found.problem
    with pytest.raises(InputError, match=r"which code this is cannot be told.*allow_dirty=true"):
        snapshot.require_clean(found, allow_dirty=False)
    snapshot.require_clean(found, allow_dirty=True)
    snapshot.take(tmp_path / "sweep" / "code", repository=repository)
    assert (tmp_path / "sweep" / "code" / "bitpipe" / "new.py").exists()  # nothing of the code is left out


def test_a_checkout_that_git_does_not_trust_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody else")
    os.chown(repository, 12345, 12345)
    monkeypatch.setenv("HOME", str(repository.parent))  # no safe.directory of the user's
    found = revision_of(repository)
    assert (found.revision, found.dirty) == (None, None)
    assert "dubious ownership" in found.problem or "unsafe repository" in found.problem


def test_an_unpacked_copy_inside_another_repository_is_not_that_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = repository / "unpacked"
    (copy / "bitpipe").mkdir(parents=True)
    assert revision_of(copy) == Revision(revision=None, dirty=None)
    monkeypatch.setenv("BITPIPE_REVISION", "abc+dirty")  # as an image says
    assert revision_of(copy) == Revision(revision="abc", dirty=True)
    assert revision_of(repository).revision == git(repository, "rev-parse", "HEAD")


def test_variables_that_point_to_another_repository_do_not_matter(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = revision_of(repository)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert revision_of(repository) == expected


def test_linked_files_and_folders_are_copied_as_what_they_are(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "order.py").write_text("z = 1\n")
    (repository / "bitpipe" / "linked").symlink_to(outside)
    (repository / "bitpipe" / "one.py").symlink_to(outside / "order.py")
    found = snapshot.take(tmp_path / "code", repository=repository)
    assert found.dirty
    for name in ("linked/order.py", "one.py"):
        copy = tmp_path / "code" / "bitpipe" / name
        assert copy.read_text() == "z = 1\n"
        assert not copy.is_symlink()


def test_a_snapshot_that_cannot_be_written_is_one_line(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "code").write_text("a file where the folder should be")
    with pytest.raises(NotWritten) as caught:
        snapshot.take(tmp_path / "code", repository=repository)
    assert str(caught.value).count("\n") == 0
