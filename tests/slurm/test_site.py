"""The site file: all of it checked, each mistake one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bitpipe.errors import InputError
from slurm import site_setup
from slurm.client import Partition
from slurm.site import REPOSITORY, Site, load


def test_no_file_is_all_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BITPIPE_SITE", raising=False)
    monkeypatch.setattr("slurm.site.DEFAULT", tmp_path / "site.yaml")
    assert load() == (Site(), None)


def test_commas_and_slashes_in_values_survive(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("environment: {NCCL_IB_HCA: 'mlx5_0:1,mlx5_1:1', DATA: /a/b, N: 3}\n")
    assert load(file)[0].environment == {"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1", "DATA": "/a/b", "N": "3"}


@pytest.mark.parametrize(("text", "complaint"), [
    ("partitoin: x", "did you mean partition"),
    ("minutes_per_cell: soon", "a positive number of minutes"),
    ("cpus_per_task: 0", "a whole number from 1"),
    ("setup: module load cuda", "expected a list"),
    ("environment: [A]", "name: value pairs"),
    ("exclusive: 1", "true or false"),
    ("container: docker", "apptainer, none, pyxis"),
    ("container: pyxis", "needs an image"),
    ("gpus: sometimes", "always, cuda, never"),
    ("a: [", "not YAML"),
    ("- a", "expected keys and values"),
])  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        load(file)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file.*slurm init"):
        load(tmp_path / "none.yaml")


def test_every_line_of_the_example_is_a_key_with_a_valid_value() -> None:
    lines = (REPOSITORY / "site.example.yaml").read_text().splitlines()
    keys = set(Site.__dataclass_fields__)
    settings = [line[2:] for line in lines if line.startswith("# ") and line[2:].partition(":")[0] in keys]
    shown = yaml.safe_load("\n".join(settings))
    assert set(shown) == keys
    Site.of(shown)


def test_the_written_file_has_what_the_cluster_said() -> None:
    gpu = {"nodes": 3, "gpus_per_node": 8, "gres": "gpu:a100:8(S:0-1)", "cpus_per_node": 64}
    offered = {
        "cpu": Partition(name="cpu", default=False, nodes=9, gpus_per_node=0, minutes=None),
        "gpu": Partition(name="gpu", default=True, minutes=240, **gpu),
    }
    site = Site.of(yaml.safe_load(site_setup.text(offered, None, "physics")))
    assert (site.partition, site.account, site.gpu_type, site.cpus_per_task) == ("gpu", "physics", "a100", 8)
    assert yaml.safe_load(site_setup.text(offered, "cpu", None)) == {"partition": "cpu"}
