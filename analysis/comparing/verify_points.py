"""What a result set holds for each point that its sweeps asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from analysis.load.results import Results
from analysis.load.sweeps import SETTINGS, NoManifest, read_manifest
from experiments.cell import ORIGINS
from experiments.composing.config import Config

# Settings that name the sweep or say how it is run: two sweeps that differ in them ask for the same point.
_HOW = {f.name for f in fields(Config)} - SETTINGS | {"backend", "hydra", "draw"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of one experiment.

    Attributes:
        experiment, origin: whose it is, and what kind of evidence.
        settings: what its overrides say that determines the result; a point's name.
        record: its newest finished record, else its newest; None if there is none.
    """

    experiment: str
    origin: str
    settings: Mapping[str, str]
    record: Mapping[str, Any] | None

    def __str__(self) -> str:
        said = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.settings.items())
        return f"{self.experiment} {self.origin} {said}"


def points(results: Results) -> list[Point]:
    """Every point of every sweep, of equal ones the newest sweep's; in the sweeps' order."""
    cells = results.cells
    paths = dict(zip(cells["cell"], cells["path"], strict=True))
    documents = {cell: results.loaded.readings[path].document for cell, path in paths.items()}
    found: dict[tuple[str, str, frozenset[tuple[str, str]]], Point] = {}
    for experiment, asked in _manifests(results.root):
        settings = _settings(asked.get("overrides") or [])
        origin = ORIGINS[asked["backend"]].value
        point = Point(
            experiment=experiment, origin=origin, settings=settings, record=documents.get(asked["cell"])
        )
        found[experiment, origin, frozenset(settings.items())] = point
    return list(found.values())


def _manifests(root: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Experiment and entry of every point asked for, oldest sweep first."""
    for path in sorted(root.glob("sweeps/*/*.json"), key=lambda path: (path.parent.name, path.stem)):
        try:
            manifest = read_manifest(path)
        except NoManifest:
            continue  # loading the results names it
        for entry in manifest["cells"]:
            yield manifest["experiment"], entry


def _settings(overrides: list[str]) -> dict[str, str]:
    pairs = (text.lstrip("+").split("=", 1) for text in overrides if "=" in text)
    return {key: value for key, value in pairs if key.partition(".")[0].partition("/")[0] not in _HOW}
