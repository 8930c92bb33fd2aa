"""A block: the cells of one comparison that share a shape and are run by the same ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.cell import IDENTITY_OPTIONS, Cell
from experiments.composing.settings import RunSettings


class Shape(NamedTuple):
    """What a block occupies: ``nodes`` × ``devices_per_node`` ranks, one per device."""

    nodes: int
    devices_per_node: int

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices_per_node}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Cells for one pool of ranks, or one allocation; picklable.

    Attributes:
        experiment: name of the sweep that asks for them.
        cells: run in rotation where the clock is real or virtual, else one after another.
        settings: how to run them, nothing of which changes a result.
    """

    experiment: str
    cells: tuple[Cell, ...]
    settings: RunSettings

    @property
    def backend(self) -> str:
        return self.cells[0].backend

    @property
    def ranks(self) -> int:
        """P = W·D, the same for every cell."""
        return self.cells[0].job.ranks

    @property
    def shape(self) -> Shape:
        """Nodes × devices per node that the ranks fill."""
        nodes = self.cells[0].layout.nodes
        return Shape(nodes, -(-self.ranks // nodes))


_APART = {
    "schedule": {"method", "chunks", "placement", "cap", "early_forward", "split_backward", "pad"},
    "job": {"sync", "layout", "learning_rate", "clip_norm", "measured"},
    "options": set(IDENTITY_OPTIONS),
}
"""What the cells of a block may differ in: how the pipeline is scheduled, and how it is stepped."""


def group(experiment: str, cells: Iterable[Cell], settings: RunSettings) -> list[Block]:
    """Put cells into one block, in order, that differ only in method, placement, sync, layout or optimizer.

    All else that identifies a cell is the block's: ranks, data, links and options are set up once
    for all of its cells, which are run in one way. A cell that comes twice is in it once.
    """
    blocks: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        key = json.dumps(_in_common(cell), sort_keys=True, default=str)
        blocks.setdefault(key, {}).setdefault(cell.id, cell)
    return [
        Block(experiment=experiment, cells=tuple(members.values()), settings=settings)
        for members in blocks.values()
    ]


def _in_common(cell: Cell) -> dict[str, Any]:
    """What all cells of its block have in common with it."""
    values = cell.identity()
    parts = {"schedule": values["job"]["schedule"], "job": values["job"], "options": values["options"]}
    for name, keys in _APART.items():
        for key in keys & parts[name].keys():
            del parts[name][key]
    return values
