"""The site file: all of it checked, each mistake one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from some_blocks import block

from bitpipe.checkout import ROOT
from bitpipe.errors import InputError
from slurm import plan, site_setup
from slurm.client import Partition
from slurm.site import Site, load
from slurm.site_text import parse


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
    lines = (ROOT / "site.example.yaml").read_text().splitlines()
    keys = set(Site.__dataclass_fields__)
    settings = [line[2:] for line in lines if line.startswith("# ") and line[2:].partition(":")[0] in keys]
    shown = parse("\n".join(settings), Path("example"))
    assert set(shown) == keys
    site = Site.of({**shown, "container": "pyxis"})
    assert site.sbatch["exclude"] == "node7,node8"
    assert site.limit == 90


GPU = {"gpus_per_node": 8, "gres": "gpu:a100:8(S:0-1)", "cpus_per_node": 64}


def test_the_written_file_has_what_the_cluster_said() -> None:
    offered = {
        "cpu": Partition(name="cpu", default=False, nodes=9, gpus_per_node=0, minutes=None),
        "gpu": Partition(name="gpu", default=True, nodes=3, minutes=240, **GPU),
    }
    site = Site.of(yaml.safe_load(site_setup.text(offered, None, "physics")))
    assert (site.partition, site.account, site.gpu_type, site.cpus_per_task) == ("gpu", "physics", "a100", 8)
    assert yaml.safe_load(site_setup.text(offered, "cpu", None)) == {"partition": "cpu"}


def test_a_partition_with_gpus_is_written_also_where_the_default_has_none() -> None:
    offered = {
        "cpu": Partition(name="cpu", default=True, nodes=9, gpus_per_node=0, minutes=None),
        "gpu": Partition(name="gpu", default=False, nodes=3, minutes=240, **GPU),
    }
    assert "partition: gpu\n" in site_setup.text(offered, None, None)


def test_nodes_unlike_the_papers_get_the_setting_that_fits_them() -> None:
    four = {**GPU, "gpus_per_node": 4, "gres": "gpu:4"}
    offered = {"gpu": Partition(name="gpu", default=True, nodes=3, minutes=240, **four)}
    assert "these 4: cluster.devices_per_node=4" in site_setup.text(offered, None, None)
    offered = {"gpu": Partition(name="gpu", default=True, nodes=3, minutes=240, **GPU)}
    assert "devices_per_node" not in site_setup.text(offered, None, None)


@pytest.mark.parametrize("account", ["0123456", "1e5", "no", "a: b", "it's", "#1", "12:30:45", "~"])
def test_an_account_is_written_so_that_every_reader_takes_it_for_text(account: str) -> None:
    offered = {"gpu": Partition(name="gpu", default=True, nodes=3, minutes=240, **GPU)}
    text = site_setup.text(offered, None, account)
    assert yaml.safe_load(text)["account"] == account
    assert Site.of(parse(text, Path("s"))).account == account


@pytest.mark.parametrize(("text", "key", "value"), [
    ("account: 0123456", "account", "0123456"),
    ("qos: no", "qos", "no"),
    ("constraint: 1e3", "constraint", "1e3"),
    ("gpu_type: 2080", "gpu_type", "2080"),
    ("partition: a,b", "partition", "a,b"),
    ("partition: [a, b]", "partition", "a,b"),
    ("partition: 12:30:45", "partition", "12:30:45"),
    ("mem_per_cpu: 4_000", "mem_per_cpu", "4_000"),
    ("account: 2026-01-01", "account", "2026-01-01"),
    ("cpus_per_task: '8'", "cpus_per_task", 8),
    ("cpus_per_task: 010", "cpus_per_task", 10),
    ("minutes_per_cell: '2.5'", "minutes_per_cell", 2.5),
    ("exclusive: yes", "exclusive", True),
    ("account: null", "account", None),
    ("srun: [--mpi=none, --ntasks-per-core=1, 0x10]", "srun", ("--mpi=none", "--ntasks-per-core=1", "0x10")),
    ("environment: {A: 010, B: yes, C: 1:30, D: , E: 1.0}", "environment",
     {"A": "010", "B": "yes", "C": "1:30", "D": "", "E": "1.0"}),
])  # fmt: skip
def test_a_value_counts_as_it_is_typed(tmp_path: Path, text: str, key: str, value: object) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    assert getattr(load(file)[0], key) == value


@pytest.mark.parametrize(("text", "lines"), [
    ("{exclude: [a, b]}", ["--exclude=a,b", "--requeue"]),
    ("{nodelist: [n1, n2]}", ["--nodelist=n1,n2", "--requeue"]),
    ("{requeue: false}", ["--no-requeue"]),
    ("{no-requeue: true}", ["--no-requeue"]),
    ("{requeue: no}", ["--no-requeue"]),
    ("{requeue: true}", ["--requeue"]),
    ("{hold: yes}", ["--hold", "--requeue"]),
    ("{hold: no}", ["--requeue"]),
    ("{mail_type: ALL, comment: 'a b'}", ["--comment='a b'", "--mail-type=ALL", "--requeue"]),
    ("{reservation: 0123}", ["--requeue", "--reservation=0123"]),
    ("{begin: 16:00:00}", ["--begin=16:00:00", "--requeue"]),
    ("{signal: }", ["--requeue"]),
    ("{nice: yes}", ["--nice", "--requeue"]),
    ("{nice: 100}", ["--nice=100", "--requeue"]),
    ("{kill-on-invalid-dep: yes}", ["--kill-on-invalid-dep=yes", "--requeue"]),
    ("{account: 007, time: '0:30:00'}", ["--account=007", "--requeue"]),
])  # fmt: skip
def test_an_option_of_sbatch_is_written_as_sbatch_takes_it(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"sbatch: {text}")
    site, _ = load(file)
    one = plan.request(block(), site)
    array = plan.Array(request=one, members=(0,))
    values = plan.parameters(array, site, name="n", code=Path("/c"))
    script = plan.render(values, count=1, folder=Path("/j"), python="p")
    usual = ("chdir", "cpus", "error", "export", "job-name", "nodes", "ntasks", "open", "output", "signal")
    found = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    left = [line for line in found if not line.startswith(tuple(f"--{name}" for name in (*usual, "time")))]
    for expected in lines:
        assert expected in found
    assert len(left) == len(lines), left


LIMITS = ["90", "1:30:00", "90:00", "0-1:30", "0-01:30:00", "'1:30:00'", '"90"', "89:59"]


@pytest.mark.parametrize("typed", LIMITS)
def test_a_time_limit_in_any_of_slurms_notations(tmp_path: Path, typed: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"sbatch: {{time: {typed}}}")
    assert load(file)[0].limit == 90


WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["partition", "sbatch", "time", "environment", "setup", "srun", "account", "python", "requeue"]
    ),
    st.sampled_from(
        ["1:30:00", "0123", "no", "~", "[a, b]", "{a: b}", "&x", "*x", "<<", "!!python/object:os"]
    ),
    st.sampled_from(["a\nb", "\x00", "\u2028", "-" * 300, "9" * 5000, "nan", "1e400", ".inf", "\ud800"]),
)


PAIRS = st.lists(WORDS, max_size=8).map(lambda words: ": ".join(words).encode("utf-8", "replace"))
BYTES = st.one_of(st.binary(max_size=60), PAIRS)


def one_line_or_site(file: Path) -> None:
    """Either a site whose script has no line that nobody asked for, or one line."""
    said = ""
    try:
        site, _ = load(file)
    except InputError as error:
        said = str(error)
    if said:
        assert len(said.splitlines()) == 1
        return
    one = plan.request(block(), site)
    values = plan.parameters(plan.Array(request=one, members=(0,)), site, name="n", code=Path("/c"))
    head = plan.render(values, count=1, folder=Path("/j"), python="p").partition("# setup")[0]
    assert all(line.startswith("#") for line in head.splitlines() if line)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(WORDS, st.one_of(WORDS, st.lists(WORDS), st.dictionaries(WORDS, WORDS)), max_size=4))
def test_any_keys_and_values_are_a_site_or_one_line(tmp_path_factory: pytest.TempPathFactory, data) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path_factory.mktemp("s") / "site.yaml"
    file.write_text(yaml.safe_dump(data), errors="surrogatepass")
    one_line_or_site(file)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(WORDS, max_size=8).map(lambda w: ": ".join(w).encode("utf-8", "replace")),
    )
)
def test_any_bytes_are_a_site_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("s") / "site.yaml"
    file.write_bytes(data)
    one_line_or_site(file)


HOSTILE = [
    "[" * 3000, "{a: " * 3000, "a: &x [*x]", "a: &a {b: *a}", "? [a]\n: b", "a: b\n---\nc: d",
    "%YAML 3.0\n---\na: b", "<<: *x", "partition: a\npartition: b", "cpus_per_task: " + "9" * 5000,
    "environment: {A B: 1}", "environment: {A: {b: c}}", "setup: [[a]]", "partition: [[a]]",
    "sbatch: {t: 1}", "sbatch: {array: 0-9}", "sbatch: {time: soon}", "sbatch: {time: 0}",
    "sbatch: {time: infinite}", "sbatch: {partition: a}\npartition: b", "sbatch: {x y: z}",
    "minutes_per_cell: 1e400", "minutes_per_cell: nan", "exclusive: maybe", 'mounts: ["a\\nb"]',
    'qos: "a\\n#SBATCH --hold"', "sbatch: {'comment\n#SBATCH --hold': x}", "image: /i.sif",
    "mem_per_cpu: {a: b}", '"\\r": x', '"a\\u2028b": x',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_file_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load(file)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


def test_what_is_no_file_or_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"account: caf\xe9\n")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "latin", tmp_path / "pipe", Path("/dev/zero"), "x" * 5000, "a\0b"):
        with pytest.raises(InputError) as caught:
            load(path)
        assert len(str(caught.value).splitlines()) == 1
