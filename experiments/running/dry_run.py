"""What a sweep would do, as text."""

from __future__ import annotations

from bitpipe.words import counted
from experiments.composing.sweep import Sweep
from experiments.records.store import Store


def describe(sweep: Sweep) -> str:
    """One line per cell: id, shape, whether it is finished, what it is; then the shapes' counts."""
    store = Store(sweep.settings.results)
    cells, blocks = counted(len(sweep.points), "cell"), counted(len(sweep.blocks), "block")
    lines = [f"{sweep.experiment}: {cells}, {blocks}; nothing is started"]
    lines.append(f"  {'cell':<12}  {'block':>5}  {'shape':<6}  {'status':<8}  what")
    ranks: dict[str, int] = {}
    for number, block in enumerate(sweep.blocks, 1):
        shape = str(block.shape)
        ranks[shape] = ranks.get(shape, 0) + len(block.cells)
        for cell in block.cells:
            record = store.best(cell.id)
            status = str(record.status) if record else "new"
            lines.append(f"  {cell.id}  {number:>5}  {shape:<6}  {status:<8}  {cell}")
    for point in sweep.points:
        if point.refusal:
            where = f"{point.cell.id}  {'-':>5}  {'-':<6}  {'invalid':<8}"
            lines.append(f"  {where}  {point.cell}: {point.refusal}")
    shapes = ", ".join(f"{count} of {shape}" for shape, count in ranks.items())
    lines.append(f"  shapes (nodes x ranks per node): {shapes}")
    return "\n".join(lines)
