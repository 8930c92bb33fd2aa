from __future__ import annotations

from pathlib import Path

import pytest
from result_folders import TINY, Folder, make_cell, make_record

from analysis.__main__ import main
from analysis.comparing.compare import compare, select
from bitpipe.origin import Origin
from experiments.records.record import Status

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Folder, Folder]:
    return Folder(tmp_path / "a"), Folder(tmp_path / "b")


def changes(a: Folder, b: Folder, **how: float) -> list[str]:
    return compare(select(str(a.root)), select(str(b.root)), **how).pairs["change"].tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [(20.0, 18.0, "slower"), (20.0, 22.0, "faster"), (20.0, 20.1, "within noise")],
)
def test_simulated_cells_change_by_more_than_the_noise_or_not(
    two: tuple[Folder, Folder], before: float, after: float, change: str
) -> None:
    a, b = two
    a.add(make_record(make_cell(), before, revision="a" * 40))
    b.add(make_record(make_cell(), after, revision="b" * 40))
    assert changes(a, b) == [change]


def test_a_ratio_whose_interval_holds_1_is_within_noise(two: tuple[Folder, Folder]) -> None:
    a, b = two
    cell = make_cell(Origin.VIRTUAL, model=TINY)
    a.add(make_record(cell, times=[1, 1, 1, 1.0, 1.2]))
    b.add(make_record(cell, times=[1, 1, 1, 1.1, 1.3]))
    assert changes(a, b) == ["within noise"]
    b.add(make_record(cell, times=[1, 1, 1.3, 1.3, 1.4], attempt=2))
    assert changes(a, b) == ["slower"]


def test_a_broken_cell_counts_as_worse(two: tuple[Folder, Folder], capsys: Capture) -> None:
    a, b = two
    a.add(make_record(make_cell(), 20.0), make_record(make_cell(variant="without_v"), 19.0))
    b.add(make_record(make_cell(), status=Status.OOM))
    assert main(["compare", str(a.root), str(b.root), "--results", str(b.root)]) == 1
    printed = capsys.readouterr().out
    assert "broken" in printed
    assert "Cells without a partner: 1 in A, 0 in B." in printed


def test_equal_results_pass(two: tuple[Folder, Folder]) -> None:
    a, b = two
    a.add(make_record(make_cell(), 20.0))
    b.add(make_record(make_cell(), 20.0))
    assert main(["compare", str(a.root), str(b.root), "--results", str(b.root)]) == 0
    assert (b.root / "tables" / "compare.csv").is_file()


def test_two_methods_of_one_folder_are_paired_by_everything_else(folder: Folder) -> None:
    folder.add(
        make_record(make_cell(method="dapple"), 15.0),
        make_record(make_cell(), 20.0),
        make_record(make_cell(micro_batches=8), 22.0),
    )
    dapple, bitpipe = (select(f"{folder.root}:method={name}") for name in ("dapple", "bitpipe"))
    found = compare(dapple, bitpipe, by="method")
    assert found.pairs["ratio"].tolist() == [pytest.approx(20 / 15)]
    assert found.alone == (0, 1)


def test_cells_that_differ_in_precision_or_batch_are_no_pair(folder: Folder) -> None:
    folder.add(
        make_record(make_cell(method="dapple", precision="bf16"), 15.0),
        make_record(make_cell(method="dapple", micro_batch_size=2), 15.0),
        make_record(make_cell(), 20.0),
    )
    dapple, bitpipe = (select(f"{folder.root}:method={name}") for name in ("dapple", "bitpipe"))
    assert compare(dapple, bitpipe, by="method").pairs.empty


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere", "nowhere"], "no such results folder"),
        (["{root}", "{root}:metod=dapple"], "did you mean method?"),
        (["{root}:method=gpipe", "{root}"], "no record fits"),
        (["{root}"], "expected A B"),
    ],
)
def test_bad_input_is_one_line(folder: Folder, arguments: list[str], says: str, capsys: Capture) -> None:
    folder.add(make_record(make_cell(), 20.0))
    assert main(["compare", *(text.format(root=folder.root) for text in arguments)]) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert "\n" not in error
