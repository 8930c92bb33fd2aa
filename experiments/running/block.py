"""A block: the cells of one comparison that share a shape and are run by the same ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from experiments.cell import Cell
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


def group(experiment: str, cells: Iterable[Cell], settings: RunSettings) -> list[Block]:
    """Put cells that differ only in method, placement, sync or layout into one block, in order."""
    blocks: dict[object, dict[str, Cell]] = {}
    for cell in cells:
        job, spec = cell.job, cell.job.schedule
        shape = (cell.backend, cell.cluster.name, job.model, job.precision, job.seed, job.iterations)
        point = (spec.depth, job.width, spec.micro_batches, job.micro_batch_size, cell.data, cell.links)
        options = tuple(sorted(cell.backend_options.items()))
        blocks.setdefault((*shape, *point, options), {}).setdefault(cell.id, cell)
    return [
        Block(experiment=experiment, cells=tuple(members.values()), settings=settings)
        for members in blocks.values()
    ]
