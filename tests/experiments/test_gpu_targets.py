"""What a cell's backend is asked for: on GPUs its ranks' target, and options of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from bitpipe.errors import InputError
from bitpipe.runtime.target import Target
from experiments.composing.compose import cell_of, settings_of, without_hydra
from experiments.composing.validate import validate
from experiments.running.block import group
from experiments.running.targets import target_of

Load = Callable[[list[str]], DictConfig]


def found(load: Load, *overrides: str) -> Target:
    config = without_hydra(load(["method=bitpipe", *overrides]))
    return target_of(cell_of(config))


def test_cells_for_gpus_use_nccl_unless_told_otherwise(load: Load) -> None:
    assert found(load, "backend=cuda") == Target(device="cuda", transport="nccl")
    assert found(load, "backend=virtual") == Target()
    asked = found(
        load, "backend=cuda", "backend.options.transport=staged", "backend.options.compile=inductor"
    )
    assert asked == Target(device="cuda", transport="staged", compile="inductor")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "backend.options.transport=ncl",
            "transport=ncl: allowed are gloo, nccl, staged (did you mean nccl?)",
        ),
        ("backend.options.transport=gloo", "transport=gloo: device=cuda takes nccl or staged"),
        ("+backend.options.transprt=nccl", "backend.options=transprt"),
        ("backend.options.compile=yes", "compile=yes: allowed are"),
    ],
)
def test_bad_options_are_one_line(load: Load, override: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        found(load, "backend=cuda", override)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_schedule_of_ones_own_runs_on_gpus(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("F0@0 B0@0\n")
    config = without_hydra(load([f"method.name=file:{path}", "method=own", "backend=cuda", "depth=1"]))
    cell = cell_of(config)
    assert set(cell.options) - set(cell.backend_options) == {"schedule"}
    assert target_of(cell) == Target(device="cuda", transport="nccl")


@pytest.mark.parametrize(
    ("backend", "override", "message"),
    [
        ("virtual", "+backend.options.pace=2", "backend.options=pace: backend=virtual has none"),
        (
            "emulate",
            "+backend.options.forward_ms=2",
            "backend.options=forward_ms: allowed are stage_forward_ms",
        ),
        ("simulate", "+backend.options.pace=2", "backend.options=pace: backend=simulate has none"),
    ],
)
def test_options_that_a_backend_does_not_have_are_refused(
    load: Load, backend: str, override: str, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        validate(cell_of(without_hydra(load(["method=bitpipe", f"backend={backend}", override]))))
    assert message in str(refused.value)


def test_cells_whose_backend_is_asked_for_something_else_do_not_share_ranks(load: Load) -> None:
    cells = [
        cell_of(
            without_hydra(
                load([f"method={method}", "backend=emulate", f"backend.options.stage_forward_ms={ms}"])
            )
        )
        for method in ("bitpipe", "dapple")
        for ms in (10, 20)
    ]
    config = without_hydra(load(["method=bitpipe", "backend=emulate"]))
    blocks = group("none", cells, settings_of(config))
    assert [[cell.job.schedule.method for cell in block.cells] for block in blocks] == [
        ["bitpipe", "dapple"]
    ] * 2


def test_a_split_backward_cannot_be_compiled(load: Load) -> None:
    with pytest.raises(InputError, match="compile=eager: a compiled backward cannot be split"):
        found(load, "backend=cuda", "backend.options.compile=eager", "method.split_backward=true")
