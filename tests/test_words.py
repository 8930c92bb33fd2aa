"""Numbers and their nouns."""

from __future__ import annotations

from bitpipe.words import counted, part


def test_one_is_not_many() -> None:
    assert [counted(n, "cell") for n in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert part(1, 1, "cell") == "1 of 1 cell is"
    assert part(1, 3, "cell") == "1 of 3 cells are"
