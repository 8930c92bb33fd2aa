"""Configuration files read without Hydra: defaults merged first, bad ones refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitpipe.errors import InputError
from bitpipe.simulate import conf


def test_defaults_are_merged_first_also_when_two_of_them_share_one(tmp_path: Path) -> None:
    for name, text in (
        ("base", "a: 1\nb: 1\nc: 1"),
        ("left", "defaults: [{}/base.yaml, _self_]\nb: 2"),
        ("right", "defaults: [{}/base.yaml]\nc: 3"),
        ("top", "defaults: [{}/right.yaml, {}/left.yaml]\nd: 4"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text.replace("{}", str(tmp_path)))
    assert conf.read("cluster", str(tmp_path / "top.yaml")) == {"a": 1, "b": 2, "c": 1, "d": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: a800", r"cluster.defaults=a800: expected a list of names \(in "),
        ("defaults: null", "cluster.defaults=None: expected a list of names"),
        ("defaults: [{cluster: a800}]", "cluster.defaults=.*: expected a list of names"),
        ("defaults: [a80]", r"cluster=a80: allowed are .* \(did you mean a800\?\)"),
        ("defaults: [HERE/one.yaml]", "one.yaml: its defaults form a cycle: .*one.yaml → .*one.yaml$"),
        ("defaults: [HERE/two.yaml]", "one.yaml: its defaults form a cycle: .*one.yaml → .*two.yaml → "),
        ("- 1", "expected a mapping"),
        ("a: [", "cannot be read"),
        ("a: 2024-13-45", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "one.yaml").write_text(text.replace("HERE", str(tmp_path)))
    (tmp_path / "two.yaml").write_text(f"defaults: [{tmp_path}/one.yaml]")
    with pytest.raises(InputError, match=message) as caught:
        conf.read("cluster", str(tmp_path / "one.yaml"))
    assert "\n" not in str(caught.value)


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.yaml").mkdir()
    for name in (tmp_path / "bytes.yaml", tmp_path / "folder.yaml", f"{'x' * 5000}.yaml"):
        with pytest.raises(InputError, match=r"cannot be read|expected a regular file"):
            conf.read("cluster", str(name))


def test_a_model_file_says_which_key_is_wrong(tmp_path: Path) -> None:
    text = (conf.CONF / "model" / "bert_tiny.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("hidden:", "hiden:"))
    with pytest.raises(InputError, match=r"model=hiden: allowed are .* \(did you mean hidden\?\)"):
        conf.model(str(path))
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("layers:")))
    with pytest.raises(InputError, match=r"model\.layers=missing: every model file must give it"):
        conf.model(str(path))
