"""Submits some cells of a sweep again: same folder, same code, new attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bitpipe.errors import choose
from experiments.running.block import Block
from slurm import client, site, submit
from slurm.folder import SweepFolder
from slurm.settle import ONLY, CellState, Collector
from slurm.show import report
from slurm.watch import follow


def wanted_cells(states: Iterable[CellState], only: str) -> set[str]:
    """Ids of the cells in one of the comma-separated ``only`` states.

    Raises:
        InputError: an unknown state.
    """
    kinds = [choose("--only", name.strip(), ONLY) for name in only.split(",")]
    names = set().union(*(ONLY[kind] for kind in kinds))
    return {state.cell for state in states if state.state in names}


def select(blocks: Sequence[Block], cells: set[str]) -> list[tuple[int, Block]]:
    """The blocks that hold one of the cells, with only those, and their index in the sweep."""
    chosen = []
    for index, block in enumerate(blocks):
        left = tuple(cell for cell in block.cells if cell.id in cells)
        if left:
            chosen.append((index, replace(block, cells=left)))
    return chosen


def requeue(
    folder: SweepFolder, *, only: str, site_file: str | None, minutes_per_cell: float | None, wait: bool
) -> int:
    """Submit the cells that ``only`` names, with the canary and preflight of the sweep; the exit status.

    Raises:
        InputError: an unknown state, or Slurm refuses.
    """
    cells = wanted_cells(Collector(folder).to_the_end(), only)
    if not cells:
        print(f"{folder.name}: no cell is {only.replace(',', ' or ')}")
        return 0
    where, _ = site.load(site_file or folder.facts.get("site_file"))
    if minutes_per_cell:
        where = replace(where, minutes_per_cell=minutes_per_cell)
    chosen = select(folder.blocks(), cells)
    asked = folder.facts
    # As the sweep was; its blocks are arranged already.
    options = submit.Options(pack=True, canary=asked.get("canary"), preflight=asked.get("preflight"))
    plan = submit.planned(
        [block for _, block in chosen], where, options, max_array_size=client.max_array_size()
    )
    submit.check(plan, where)
    numbers = [index for index, _ in chosen]
    submit.submit(folder, plan, where, print, numbers=numbers)
    if not wait:
        return 0
    return report(folder, follow(folder, lambda line: print(line, flush=True)))
