"""A file is written whole or not at all."""

from pathlib import Path

import pytest

from bitpipe.files import replacing


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    for text in ("old", "new"):
        with replacing(path) as half:
            half.write_text(text)
            assert not path.exists() or path.read_text() == "old"
        assert path.read_text() == text
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def broken() -> None:
        with replacing(path) as half:
            half.write_text("ha")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        broken()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
