"""What a cell for GPUs asks of its ranks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from omegaconf import DictConfig

from bitpipe.errors import InputError
from bitpipe.runtime.target import Target
from experiments.compose import cell_of, without_hydra
from experiments.targets import target_of

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


def test_a_split_backward_cannot_be_compiled(load: Load) -> None:
    with pytest.raises(InputError, match="compile=eager: a compiled backward cannot be split"):
        found(load, "backend=cuda", "backend.options.compile=eager", "method.split_backward=true")
