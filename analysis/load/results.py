"""A results folder as tidy frames: what the functions of :mod:`analysis.artefacts` are given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from analysis.load import Loaded, load, load_offline, load_online
from bitpipe.errors import InputError, choose

SOURCES = ("records", "wandb-offline", "wandb:ENTITY/PROJECT")


def check_source(source: str) -> None:
    """Refuse a source that is none of :data:`SOURCES`, with an InputError."""
    if not re.fullmatch(r"wandb:[^/\s]+/[^/\s]+", source):
        choose("source", source, SOURCES)
    elif source == SOURCES[-1]:
        raise InputError("source", source, "name an entity and a project")


class NoResults(InputError):
    """There are no records to draw from; the message names the command that makes them."""

    def __init__(self, root: Path, id: str, command: str = "") -> None:
        self.root, self.id, self.command = root, id, command
        super().__init__(
            "results",
            root,
            f"holds no record of {id}",
            f"make them with: {command or f'python run.py +experiment={id} -m'}",
        )

    def __reduce__(self) -> tuple[type, tuple[Path, str, str]]:  # type: ignore[override]
        return type(self), (self.root, self.id, self.command)


@dataclass(frozen=True)
class Results:
    """Everything below one results folder, read once.

    Attributes:
        root: the folder, usually ``results``: read from and written to.
        source: ``records``; ``wandb-offline``: the offline files below ``root``; or
            ``wandb:ENTITY/PROJECT``: the wandb API.
    """

    root: Path
    source: str = "records"

    @cached_property
    def loaded(self) -> Loaded:
        """All frames and every problem that was met on the way."""
        kind, _, project = self.source.partition(":")
        if kind == "wandb" and project:
            return load_online(project)
        check_source(self.source)
        return load_offline(self.root) if self.source == "wandb-offline" else load(self.root)

    @property
    def cells(self) -> pd.DataFrame:
        """One row per cell, its last attempt; columns as :mod:`analysis.load.schema` lists them."""
        return self.loaded.cells

    def experiment(self, id: str, *, every_model: bool = False) -> pd.DataFrame:
        """The cells of an experiment: one row per point and origin, missing ones included.

        Of several models swept one after another the newest counts, or with ``every_model`` each.

        Columns are those of :attr:`cells`, plus the experiment's labels, each in a column of
        its own.

        Raises:
            NoResults: no sweep of it lies below :attr:`root`.
        """
        rows = self.loaded.experiment(id, every_model=every_model)
        if rows.empty:
            raise NoResults(self.root, id)
        return rows
