"""Tables of measured cells: what cannot be one is refused in one line that says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.errors import InputError
from bitpipe.simulate.__main__ import main
from bitpipe.simulate.cells import read_cells, select

HEADER = "model,depth,global_batch,variant,samples_per_s,data_parallel,micro_batch\n"
ROW = "bert-64,4,16,full,10.5,1,4\n"


def test_a_table_of_ones_own_is_read_also_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(HEADER + ROW, encoding="utf-8-sig")
    assert [str(cell) for cell in read_cells(path)] == ["bert_64 D=4 N=4 W=1 B=4 full"]


@pytest.mark.parametrize("command", ["calibrate", "table"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "cells.csv: expected a text file in UTF-8"),
        (b"", r"cells.csv: has no cells \(expected a header"),
        (HEADER.encode(), "cells.csv: has no cells"),
        ((HEADER + "bert-64,4,16\n").encode(), "cells.csv:2: the row has fewer values than the header"),
        ((HEADER + ROW.replace("full", "fulll")).encode(), r"variant=fulll: .*\(did you mean full\?\)"),
        ((HEADER + ROW.replace(",1,4", ",0,4")).encode(), "cells.csv:2: .* must be positive"),
        ((HEADER + ROW.replace("10.5", "nan")).encode(), "cells.csv:2: samples_per_s nan is not"),
        ((HEADER + ROW.replace("10.5", "0")).encode(), "cells.csv:2: samples_per_s 0.0 is not"),
        ((HEADER + "x" * 200_000).encode(), "cells.csv: cannot be read: field larger"),
    ],
)
def test_a_bad_table_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, content: bytes, message: str
) -> None:
    path = tmp_path / "cells.csv"
    path.write_bytes(content)
    assert main([command, "--cells", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    with pytest.raises(InputError, match=message):
        read_cells(path)


def test_what_is_no_file_is_refused() -> None:
    with pytest.raises(InputError, match="expected a regular file"):
        read_cells(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"variants": ["full", "fulll"]}, r"variants=fulll: allowed are .*full.* \(did you mean full\?\)"),
        ({"depths": [4, 5]}, r"depths=5: allowed are 4, 8, 16 \(nearest: 4\)"),
        ({"micro_batches": [1000]}, r"micro-batches=1000: allowed are 4, .*64 \(nearest: 64\)"),
    ],
)
def test_values_that_no_cell_has_are_named(asked: dict[str, list[object]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        select(read_cells(), **asked)  # type: ignore[arg-type]
