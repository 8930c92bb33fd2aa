"""``python -m bitpipe.simulate calibrate``: nothing is fitted for a file that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

import bitpipe.simulate.fit
from bitpipe.simulate.__main__ import main


@pytest.fixture
def _nothing_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("fitted")

    monkeypatch.setattr(bitpipe.simulate.fit, "fit", refuse)


@pytest.mark.usefixtures("_nothing_is_fitted")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--out", "HERE/none/mine.yaml"], "none/mine.yaml: there is no folder HERE/none"),
        (["--out", "HERE"], "expected a file"),
        (["--out", "HERE/notes.yaml"], "notes.yaml: exists and was not written by this command"),
        (["--out", "HERE/" + "x" * 5000], "cannot be written: File name too long"),
        (["--variants", "fulll"], "variants=fulll: allowed are full, "),
        (["--variants", "fulll"], "(did you mean full?)"),
        (["--depths", "5"], "depths=5: allowed are 4, 8, 16 (nearest: 4)"),
    ],
)
def test_bad_input_is_refused_before_fitting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], message: str
) -> None:
    notes = tmp_path / "notes.yaml"
    notes.write_text("mine: 1\n")
    assert main(["calibrate", *(text.replace("HERE", str(tmp_path)) for text in given)]) == 2
    said = capsys.readouterr().err
    assert message.replace("HERE", str(tmp_path)) in said
    assert said.count("\n") == 1
    assert notes.read_text() == "mine: 1\n"


def test_a_file_of_this_command_is_written_over_and_depths_default_to_those_measured(tmp_path: Path) -> None:
    cells, out = tmp_path / "cells.csv", tmp_path / "mine.yaml"
    header = "model,depth,global_batch,variant,samples_per_s,data_parallel,micro_batch\n"
    cells.write_text(header + "bert-64,8,32,full,20,1,4\n")
    for _ in range(2):
        assert main(["calibrate", "--cells", str(cells), "--out", str(out)]) == 0
    assert "--depths 8 --" in out.read_text().splitlines()[0]
