"""Imports of the whole product, read from its source: no circle, one direction, rooms kept apart."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from bitpipe.checkout import ROOT

PACKAGES = ("bitpipe", "experiments", "slurm", "hydra_plugins", "analysis")
"""Each may import those to its left (run.py: all of them), and not the other way round."""

# docs/design.md, "Rooms and who may import whom"; `__main__` modules are programs, not rooms.
KNOWN_IN_BITPIPE = {
    "bitpipe": {"errors", "origin"},
    "errors": set(),
    "origin": set(),
    "reader": set(),
    "checkout": set(),
    "files": set(),
    "schedule": {"errors", "origin"},
    "cluster": {"errors"},
    "models": {"errors", "schedule"},
    "job": {"errors", "models", "schedule"},
    "traffic": {"cluster", "schedule"},
    "data": {"errors", "models"},
    "draw": {"cluster", "errors", "schedule"},
    "simulate": {"checkout", "cluster", "errors", "job", "models", "origin", "schedule", "traffic"},
    "runtime": {"cluster", "data", "errors", "job", "models", "origin", "schedule", "traffic"},
    "gpu_check": {
        "checkout",
        "cluster",
        "data",
        "errors",
        "files",
        "job",
        "models",
        "runtime",
        "schedule",
        "simulate",
    },
}


@cache
def modules() -> dict[str, Path]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    parts = {path: path.relative_to(ROOT).with_suffix("").parts for path in [*paths, ROOT / "run.py"]}
    return {".".join(part).removesuffix(".__init__"): path for path, part in parts.items()}


@cache
def imports(module: str) -> frozenset[str]:
    """All that a module imports, in functions and for type checkers, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{module}: relative import"
            assert node.level == 0, f"{module}: relative import"
            inner = {f"{node.module}.{name.name}" for name in node.names} & modules().keys()
            found |= inner or {node.module}
    return frozenset(found)


def below(module: str) -> set[str]:
    """Itself and all product modules that it leads to."""
    found, todo = {module}, [module]
    while todo:
        todo += (new := imports(todo.pop()) & modules().keys() - found)
        found |= new
    return found


def test_no_module_leads_back_to_itself() -> None:
    graph = {module: (imports(module) & modules().keys()) - {module} for module in modules()}
    assert len(graph) > 200
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("import circle: " + " imports ".join(reversed(error.args[1])))


def test_packages_import_one_way() -> None:
    for module in modules():
        package = module.partition(".")[0]
        allowed = {*PACKAGES[: PACKAGES.index(package) + 1]} if package in PACKAGES else {*PACKAGES, "run"}
        for name in imports(module) & modules().keys():
            assert name.partition(".")[0] in allowed, f"{module} imports {name}"


def test_rooms_of_bitpipe_know_whom_the_design_lets_them_know() -> None:
    for module in modules():
        room = module.split(".")[min(1, module.count("."))]
        if not module.startswith("bitpipe") or module.endswith("__main__"):
            continue
        for name in imports(module) & modules().keys():
            other = name.split(".")[1]
            assert other == room or other in KNOWN_IN_BITPIPE[room], f"{module} imports {name}"


@pytest.mark.parametrize("library", ["hydra", "omegaconf", "wandb", "pandas"])
def test_bitpipe_is_a_library(library: str) -> None:
    for module in modules():
        if module.startswith("bitpipe"):
            assert library not in {name.partition(".")[0] for name in imports(module)}, module


def test_schedules_need_neither_torch_nor_numpy() -> None:
    for module in below("bitpipe.schedule"):
        assert not {"torch", "numpy"} & {name.partition(".")[0] for name in imports(module)}, module
