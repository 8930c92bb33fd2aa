"""Backend and launcher: what was chosen, and why."""

from pathlib import Path

import pytest

from bitpipe.errors import InputError
from experiments.composing.choice import Machine, choose_backend, pinned_backend

LAPTOP = Machine(gpus=0, sbatch=False)
WORKSTATION = Machine(gpus=4, sbatch=False)
CLUSTER = Machine(gpus=0, sbatch=True)


@pytest.mark.parametrize(
    ("machine", "overrides", "multirun", "backend", "launcher"),
    [
        (LAPTOP, [], True, "simulate", "local"),
        (LAPTOP, ["backend=virtual"], True, "virtual", "local"),
        (WORKSTATION, [], True, "cuda", "local"),
        (WORKSTATION, [], False, "cuda", "local"),
        (CLUSTER, [], True, "cuda", "slurm"),
        (CLUSTER, [], False, "simulate", "local"),
        (CLUSTER, ["backend=virtual"], True, "virtual", "slurm"),
        (CLUSTER, ["backend=simulate"], True, "simulate", "local"),
        (CLUSTER, ["backend=simulate", "hydra/launcher=slurm"], True, "simulate", "slurm"),
        (CLUSTER, ["hydra/launcher=local"], True, "simulate", "local"),
    ],
)
def test_default_is_cuda_where_gpus_are_or_slurm_takes_it_and_a_simulation_stays_here(
    machine: Machine, overrides: list[str], multirun: bool, backend: str, launcher: str
) -> None:
    choice = choose_backend(overrides, machine, multirun=multirun)
    assert (choice.backend, choice.launcher) == (backend, launcher)
    assert choice.sentence.startswith(f"backend={backend} (")
    assert f"launcher={launcher} (" in choice.sentence


def test_an_experiment_can_pin_its_backend(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("defaults:\n  - override /backend: simulate\n")
    assert pinned_backend(file) == "simulate"
    assert pinned_backend(tmp_path / "none.yaml") is None
    choice = choose_backend([], WORKSTATION, multirun=True, pinned="simulate")
    assert choice.backend == "simulate"
    assert "backend=simulate" not in choice.overrides, "the file says it already"


def test_forcing_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="no sbatch"):
        choose_backend(["hydra/launcher=slurm"], LAPTOP, multirun=True)
    with pytest.raises(InputError, match="add -m"):
        choose_backend(["hydra/launcher=local"], LAPTOP, multirun=False)


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles"])
def test_hidden_gpus_do_not_count(hidden: str) -> None:
    assert Machine.here({"CUDA_VISIBLE_DEVICES": hidden}).gpus == 0
