"""Result folders that several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_folders import Folder, table6_folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "results")


@pytest.fixture
def table6(folder: Folder) -> Folder:
    return table6_folder(folder)
