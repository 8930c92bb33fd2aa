"""A sweep: every cell composed and validated before the first one starts or is submitted.

A launcher plugin needs only this::

    sweep = plan(load, job_overrides, launcher="slurm")   # raises InputError, starts nothing
    … run or submit sweep.blocks …
    finish(sweep)                                            # raises SweepFailed
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from bitpipe.errors import InputError
from experiments.cell import Cell
from experiments.composing.common import check_common, check_same_settings
from experiments.composing.compose import cell_of, settings_of
from experiments.composing.composition import Composer, Load
from experiments.composing.settings import RunSettings
from experiments.composing.shrinking import resized, sizes
from experiments.composing.validate import validate, validate_settings
from experiments.running.block import Block, group
from experiments.running.data import data_name

SILENCE = 5.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination of a sweep's grid.

    Attributes:
        overrides: what the command line would have to say.
        cell: the cell there.
        settings: how to run it; what of it depends on the cell (its data, its backend's defaults) included.
        refusal: why it cannot run, if the experiment takes that for a result.
    """

    overrides: tuple[str, ...]
    cell: Cell
    settings: RunSettings
    refusal: InputError | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All points of an experiment, validated.

    Attributes:
        experiment: its name.
        title: one line for people.
        stamp: names its manifest, unique among concurrent sweeps.
        points: in grid order.
        settings: of the first point; where results go and who runs them is the same for all.
        dry_run: list, start nothing.
        config: the first cell's configuration as plain data, for settings that a launcher reads.
    """

    experiment: str
    title: str
    stamp: str
    points: tuple[Point, ...]
    settings: RunSettings
    dry_run: bool = False
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that can run, each once, in grid order."""
        return tuple({point.cell.id: point.cell for point in self.points if not point.refusal}.values())

    @property
    def repeats(self) -> int:
        """The most measurements that any block is asked for."""
        return max((block.settings.repeats for block in self.blocks), default=1)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The same cells as blocks; cells that are to be run in different ways share none."""
        ways: dict[RunSettings, dict[str, Cell]] = {}
        seen: set[str] = set()
        for point in self.points:
            if not point.refusal and point.cell.id not in seen:
                seen.add(point.cell.id)
                ways.setdefault(point.settings, {})[point.cell.id] = point.cell
        return tuple(
            block
            for settings, cells in ways.items()
            for block in group(self.experiment, cells.values(), settings)
        )


def plan(
    load: Load,
    jobs: Sequence[Sequence[str]],
    *,
    launcher: str = "local",
    say: Callable[[str], None] = print,
) -> Sweep:
    """Compose and validate every job of a sweep.

    Args:
        load: from overrides to a configuration, as Hydra's ``load_sweep_config``.
        jobs: the overrides of each job.
        launcher: ``local`` or ``slurm``; for the records.
        say: told now and then how far it is; searched orders take their time.

    Raises:
        InputError: a cell cannot run (one line, the first such cell and how many there are), a
            setting is wrong, or one that the cells share differs between them. Nothing was started.
    """
    compose = Composer(load)
    points: list[Point] = []
    errors: list[tuple[Sequence[str], InputError]] = []
    first: Mapping[str, Any] | None = None
    checked: set[tuple[RunSettings, str]] = set()
    spoken = time.monotonic()
    for number, overrides in enumerate(jobs):
        if time.monotonic() - spoken > SILENCE:
            spoken = time.monotonic()
            say(f"checked {number} of {len(jobs)} cells, nothing started yet")
        config = compose(overrides)
        first = first or config
        check_common(first, config)
        settings = settings_of(config, launcher)
        if (settings, config["backend"]["name"]) not in checked:
            validate_settings(settings, config["backend"]["name"])
            checked.add((settings, config["backend"]["name"]))
        cell = cell_of(config)
        refusal = None
        try:
            validate(cell)
        except InputError as error:
            if config["experiment"]["invalid"] == "record":
                refusal = error
            else:
                errors.append((overrides, error))
        points.append(Point(overrides=tuple(overrides), cell=cell, settings=settings, refusal=refusal))
    if first is None:
        raise InputError("sweep", "empty", "at least one cell")
    if errors:
        raise _in_sweep(errors, len(jobs))
    if launcher == "local":
        _check_ranks(points)
    if first["scale"] is not None:
        siblings = sizes((point.cell for point in points if not point.refusal), first["scale"])
        points = [replace(point, cell=resized(point.cell, siblings)) for point in points]
    points = [replace(point, cell=_with_data(point.cell, point.settings)) for point in points]
    ways: dict[str, RunSettings] = {}
    for point in points:
        check_same_settings(point.cell, ways.setdefault(point.cell.id, point.settings), point.settings)
    return Sweep(
        experiment=first["experiment"]["name"],
        title=first["experiment"]["title"],
        stamp=f"{datetime.now():%Y%m%d-%H%M%S-%f}-{os.getpid()}",
        points=tuple(points),
        settings=points[0].settings,
        dry_run=first["dry_run"],
        config=first,
    )


def _check_ranks(points: Sequence[Point]) -> None:
    ranks = [
        point.cell.job.ranks for point in points if not point.refusal and point.cell.backend != "simulate"
    ]
    if ranks:
        from bitpipe.runtime.processes.pool import check_open_files

        check_open_files(max(ranks))


def _with_data(cell: Cell, settings: RunSettings) -> Cell:
    return replace(cell, data=data_name(settings, cell.job.model, cell.backend))


def _in_sweep(errors: Sequence[tuple[Sequence[str], InputError]], cells: int) -> InputError:
    overrides, error = errors[0]
    if cells == 1:
        return error
    where = f"{len(errors)} of {cells} cells cannot run, first: {' '.join(overrides)}"
    return InputError(error.key, error.value, error.allowed, "; ".join(filter(None, (error.hint, where))))
