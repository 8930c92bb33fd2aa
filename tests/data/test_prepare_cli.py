"""``python -m bitpipe.data``: files, the hub, and bad input in one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bitpipe.data.__main__ import main
from bitpipe.data.corpus import TOKENS, verify
from bitpipe.data.hub import HubDocuments
from bitpipe.data.prepare import prepare
from bitpipe.errors import InputError


class LocalHub:
    """A hub with two Parquet files per folder; counts what is downloaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        self.files = ["README.md", *(f"{lang}/train-{n}.parquet" for lang in ("de", "en") for n in (1, 0))]
        for file in self.files[1:]:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            texts = [f"{file} says sentence {n} of many. It ends here." for n in range(300)]
            pyarrow.parquet.write_table(pyarrow.table({"text": texts, "id": texts}), folder / file)

    def resolve(self, repository: str, revision: str) -> tuple[str, list[str]]:
        if repository != "owner/wiki" or revision not in ("main", "v2"):
            raise OSError("404: no such data set\nwith a long explanation")
        return f"commit-of-{revision}", self.files

    def fetch(self, repository: str, commit: str, file: str) -> Path:
        assert commit.startswith("commit-of-")
        self.fetched.append(file)
        return self.folder / file


def test_a_hub_data_set_is_read_in_order_and_no_further_than_needed(tmp_path: Path) -> None:
    hub = LocalHub(tmp_path / "hub")
    documents = HubDocuments("hub:owner/wiki/en", hub=hub)
    assert documents.files == ["en/train-0.parquet", "en/train-1.parquet"]
    assert len(list(documents)) == 600
    hub.fetched.clear()
    # One pass trains the tokenizer on everything, the second stops at the bound.
    manifest = prepare(documents, tmp_path / "c", kind="wordpiece", vocabulary=300, max_tokens=500)
    assert hub.fetched == ["en/train-0.parquet", "en/train-1.parquet", "en/train-0.parquet"]
    assert 500 <= manifest.tokens < 600
    assert manifest.name == "wiki"


def test_a_revision_and_a_folder_pin_the_fingerprint(tmp_path: Path) -> None:
    hub = LocalHub(tmp_path)
    names = ("hub:owner/wiki/en", "hub:owner/wiki/de", "hub:owner/wiki/en@v2", "hub:owner/wiki")
    assert len({HubDocuments(name, hub=hub).fingerprint() for name in names}) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hub:wiki", "expected hub:OWNER/NAME"),
        ("hub:owner/other", r"does not give it \(404: no such data set\)$"),
        ("hub:owner/wiki/fr", r"folders with some: \['de', 'en'\]"),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        HubDocuments(source, hub=LocalHub(tmp_path))


def test_prepare_then_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.txt").write_text("To be prepared. To be verified.\n" * 200)
    out = tmp_path / "out"
    arguments = ["prepare", str(tmp_path / "t.txt"), str(out), "--family", "gpt", "--vocabulary", "300"]
    assert main(arguments) == 0
    assert f"data.path={out}" in capsys.readouterr().out
    assert main(arguments) == 0  # finds it done
    assert main(["verify", str(out)]) == 0
    assert "every checksum matches" in capsys.readouterr().out
    verify(out, deep=True)
    (out / TOKENS).write_bytes(bytes((out / TOKENS).stat().st_size))
    assert main(["verify", str(out)]) == 2
    captured = capsys.readouterr()
    assert "does not match its checksum" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "no such file or folder"),
        (["builtin", "--vocabulary", "10"], "wordpiece needs at least 256"),
        (["builtin", "--max-tokens", "0"], "max_tokens=0: a whole number from 1"),
        (["builtin", "--tokenizer", "none.json"], "none.json: no such file"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    source, *rest = arguments
    assert main(["prepare", source, "out", "--family", "bert", *rest]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("out", "message"), [("file", "is a file"), ("file/below", "cannot be written")])
def test_an_output_path_that_is_no_folder_is_one_line(
    out: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert main(["prepare", "builtin", str(tmp_path / out), "--family", "bert"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"
