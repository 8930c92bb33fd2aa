"""Hydra as its users know it: flags, search paths, deleted keys, foreign plugins, notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from bitpipe.errors import InputError
from experiments.composing.choice import Machine, choose_backend
from experiments.composing.command_line import one_line, prepare
from experiments.composing.notebook import sweep_of
from experiments.composing.sweep import plan

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
LAPTOP = Machine(gpus=0, sbatch=False)
CLUSTER = Machine(gpus=0, sbatch=True)


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=cwd,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
    )


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a cluster, an experiment and a group of one's own."""
    for name, text in {
        "cluster/mine.yaml": (CONF / "cluster" / "a800.yaml").read_text().replace("name: a800", "name: mine"),
        "experiment/few.yaml": "# @package _global_\n"
        "defaults:\n  - /site_of: lab\n  - override /backend: simulate\n"
        "experiment: {name: few}\nhydra: {sweeper: {params: {method: 'dapple,bitpipe'}}}\n",
        "site_of/lab.yaml": "# @package _global_\nseed: 7\n",
        "site_of/home.yaml": "# @package _global_\nseed: 8\n",
    }.items():
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text(text)
    return tmp_path / "own"


@pytest.mark.parametrize("form", ["--config-dir {}", "-cd {}", "hydra.searchpath=[file://{}]"])
def test_groups_of_ones_own_folder_are_known(form: str, own: Path, tmp_path: Path) -> None:
    where = form.format(own).split()
    done = run(
        *where, "+experiment=few", "-m", "cluster=mine", "depth=4", "dry_run=true", f"results={tmp_path}/r"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("backend=simulate (the experiment's own)")
    assert "few: 2 cells" in done.stdout


def test_a_swept_group_of_ones_own_is_composed_and_not_set_as_a_value(own: Path) -> None:
    shown = run("--config-dir", str(own), "+experiment=few", "site_of=home", "--cfg", "job")
    assert shown.returncode == 0, shown.stderr
    assert "seed: 8" in shown.stdout
    done = run(
        "--config-dir", str(own), "+experiment=few", "-m", "site_of=home,lab", "depth=4", "dry_run=true"
    )
    assert done.returncode == 0, done.stderr
    assert "few: 4 cells" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("arguments", "machine", "backend"),
    [
        (["--cfg", "job"], Machine(gpus=4, sbatch=False), "cuda"),
        (["-m", "--cfg", "job"], CLUSTER, "cuda"),
        (["--info", "defaults", "-m"], CLUSTER, "cuda"),
        (["--cfg", "job", "-m", "+experiment=plan"], CLUSTER, "simulate"),
        (["-c", "job", "backend=virtual"], LAPTOP, "virtual"),
    ],
)
def test_what_is_shown_is_what_would_run(arguments: list[str], machine: Machine, backend: str) -> None:
    ready = prepare(arguments, CONF, machine)
    assert ready.answers
    assert ready.sentence.startswith(f"backend={backend} ")
    assert not {"-m", "--multirun"} & set(ready.arguments), "Hydra shows or runs, not both"
    assert backend == "simulate" or f"backend={backend}" in ready.arguments


def test_a_shown_configuration_is_all_of_stdout() -> None:
    done = run("--cfg", "job", "depth=4")
    assert done.stdout.startswith("experiment:")
    assert done.stderr.startswith("backend=simulate")


def test_flags_and_overrides_may_stand_in_any_order() -> None:
    for arguments in (
        ["depth=4", "-m", "seed=1,2"],
        ["-m", "depth=4", "seed=1,2"],
        ["depth=4", "seed=1,2", "-m"],
    ):
        ready = prepare(arguments, CONF, LAPTOP)
        assert ready.arguments[:2] == ("depth=4", "seed=1,2")
        assert ready.arguments[-1] == "-m"
        assert "hydra/launcher=local" in ready.arguments


@pytest.mark.parametrize(
    ("machine", "launcher", "words"),
    [
        (Machine(gpus=0, sbatch=True, job="77", on_node=True), "local", "inside job 77"),
        (Machine(gpus=0, sbatch=True, job="77", on_node=False), "slurm", "not job 77"),
    ],
)
def test_inside_an_allocation_it_runs_there_or_says_that_it_submits(
    machine: Machine, launcher: str, words: str
) -> None:
    choice = choose_backend(["backend=virtual"], machine, multirun=True)
    assert choice.launcher == launcher
    assert words in choice.sentence
    forced = choose_backend(["backend=virtual", "hydra/launcher=slurm"], machine, multirun=True)
    assert forced.launcher == "slurm"


def test_an_allocation_is_seen() -> None:
    assert Machine.here({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}).allocated
    assert not Machine.here({"SLURM_JOB_ID": "7"}).allocated
    assert not Machine.here({}).allocated


def keys_of(load: Callable[[list[str]], DictConfig]) -> list[str]:
    from omegaconf import OmegaConf

    from experiments.composing.compose import without_hydra

    def walk(prefix: str, values: object) -> list[str]:
        if not isinstance(values, dict):
            return []
        return [
            key for name in values for key in (f"{prefix}{name}", *walk(f"{prefix}{name}.", values[name]))
        ]

    return walk("", OmegaConf.to_container(without_hydra(load([]))))


def test_any_deleted_key_is_one_line(load: Callable[[list[str]], DictConfig], tmp_path: Path) -> None:
    """``~key`` of every key of the configuration: a sentence, or a key that has no need of a value."""
    found = 0
    for key in keys_of(load):
        raised: Exception | None = None
        try:
            plan(load, [["backend=simulate", f"~{key}", f"results={tmp_path}"]])
        except Exception as error:
            raised = error
        if raised is not None:
            found += 1
            line = one_line(raised, CONF)
            assert line is not None, f"~{key}: {raised!r}"
            assert "\n" not in line
    assert found > 40


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["~depth"], "depth=(deleted): every key has a value"),
        (["~data"], "data=(deleted): "),
        (["-m", "hydra/sweeper=basic", "depth=4,2"], "hydra/sweeper=basic: allowed are grid"),
        (["-m", "hydra/launcher=basic", "depth=4,2"], "hydra/launcher=basic: allowed are local, slurm"),
        (["data.path=/a/b=c.txt"], """(type 'data.path="/a/b=c.txt"')"""),
        (["data.path=a'b=c d.txt"], "(type 'data.path="),
        (["--info", "depth=4"], "argument --info/-i: invalid choice"),
        (["calibration={}"], "calibration={{}}: allowed are"),
        (["--nonsense", "depth=4"], "unrecognized arguments: --nonsense"),
        (["--config-dir", "nowhere"], "'{cwd}/nowhere' not found"),
        (["-m", "method=dapple,bitpip"], "method=bitpip: allowed are"),
    ],
)
def test_what_hydra_would_answer_with_a_traceback_or_a_file_is_one_line(
    arguments: list[str], line: str, tmp_path: Path
) -> None:
    done = run(*arguments, "backend=simulate", f"results={tmp_path}/results", cwd=tmp_path)
    assert done.returncode == 2
    assert line.format(cwd=tmp_path) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_the_quoted_form_that_is_named_works(tmp_path: Path) -> None:
    file = tmp_path / "b=c.txt"
    file.write_text("Some words of text. " * 900)
    done = run(f'data.path="{file}"', "model=bert_tiny", "backend=virtual", "depth=2", "dry_run=true",
               f"data.cache={tmp_path}/cache", f"results={tmp_path}/r")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_hydra_composes_in_a_notebook_without_preparation() -> None:
    script = (
        "from hydra import compose, initialize_config_dir\n"
        f"with initialize_config_dir({str(CONF)!r}, version_base='1.3'):\n"
        "    print(compose('config', ['depth=4']).depth)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT
    )
    assert done.stdout == "4\n", done.stderr


def test_a_sweep_from_a_notebook_is_the_command_lines(tmp_path: Path) -> None:
    sweep = sweep_of("+experiment=table6_ablation", "backend=simulate", "depth=4,8", f"results={tmp_path}")
    assert len(sweep.cells) == 16
    assert sweep.experiment == "table6_ablation"
    (one,) = sweep_of("depth=4", "backend=simulate", f"results={tmp_path}").cells
    assert one.job.schedule.depth == 4
    with pytest.raises(InputError, match="even depth"):
        sweep_of("depth=5", "backend=simulate")


def test_a_notebook_that_has_initialised_hydra_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GlobalHydra.instance(), "hydra", None)  # other tests' own
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert len(sweep_of("depth=4", "backend=simulate", f"results={tmp_path}").cells) == 1
        assert compose("mine").a == 1


HOSTILE = ["null", "-1", "text", "[1]", "{a:1}", "1e400", "'a\\nb'"]


@pytest.mark.parametrize("value", HOSTILE)
def test_any_value_of_a_models_or_methods_key_is_one_line_at_most(
    value: str, load: Callable[[list[str]], DictConfig], tmp_path: Path
) -> None:
    for key in (key for key in keys_of(load) if key.startswith(("model.", "method."))):
        raised: Exception | None = None
        try:
            plan(load, [["backend=simulate", "depth=2", f"{key}={value}", f"results={tmp_path}"]])
        except Exception as error:
            raised = error
        line = "" if raised is None else one_line(raised, CONF)
        assert line is not None, f"{key}={value}: {raised!r}"
        assert "\n" not in line, line


@pytest.mark.parametrize("value", ["/folder/mine.yaml", "./mine.yaml", "folder/mine.yaml", "../a b/mine.yml"])
@pytest.mark.parametrize("group", ["model", "cluster", "calibration"])
def test_a_path_as_a_groups_choice_is_answered_with_the_form_that_takes_ones_own_file(
    load: Callable[[list[str]], DictConfig], group: str, value: str
) -> None:
    with pytest.raises(Exception, match="Could not find") as raised:
        load([f"{group}={value}"])
    line = one_line(raised.value, CONF) or ""
    assert line.startswith(f"{group}={value}: allowed are ")
    assert line.endswith(f"--config-dir FOLDER {group}=mine, with FOLDER/{group}/mine.yaml)")
