"""How a grid and a command line become jobs."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.composing.grid import expand


def jobs(params: dict[str, object], points: list[dict[str, object]], *arguments: str) -> list[str]:
    return [" ".join(job) for job in expand(params, points, arguments, OverridesParser.create())]


def test_a_grid_is_the_product_of_its_keys_in_order() -> None:
    assert jobs({"depth": "4,8", "method": "a,b"}, []) == [
        "depth=4 method=a",
        "depth=4 method=b",
        "depth=8 method=a",
        "depth=8 method=b",
    ]


def test_points_name_combinations_that_no_grid_describes() -> None:
    points: list[dict[str, object]] = [{"width": 2, "depth": 4}, {"width": 1, "depth": 8}]
    assert jobs({"method": "a,b"}, points) == [
        "method=a width=2 depth=4",
        "method=b width=2 depth=4",
        "method=a width=1 depth=8",
        "method=b width=1 depth=8",
    ]


def test_the_command_line_replaces_what_the_experiment_says() -> None:
    assert jobs({"depth": "4,8"}, [], "depth=16", "+experiment=x") == ["depth=16 +experiment=x"]
    assert jobs({"depth": 4}, [], "depth=8,16") == ["depth=8", "depth=16"]


def test_no_job_comes_twice() -> None:
    assert jobs({}, [{"depth": 4}, {"depth": 8}], "depth=2") == ["depth=2"]


@pytest.mark.parametrize("value", ["4*depth", "'mlx5_0:1,mlx5_1:1'", '"a b"', "a/b/c", "null", "{x:1,y:2}"])
def test_odd_values_survive(value: str) -> None:
    assert jobs({}, [], f"+key={value}") == [f"+key={value}"]
