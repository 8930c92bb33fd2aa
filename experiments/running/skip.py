"""Which cells of a sweep still have to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bitpipe.words import counted, part
from experiments.composing.sweep import Sweep
from experiments.records.devices import made_elsewhere
from experiments.records.provenance import code
from experiments.records.record import Record, Status
from experiments.records.record_line import line_of
from experiments.records.store import Store
from experiments.running.block import Block
from experiments.running.repeats import count

FEW = 8
"""So many skipped cells are shown one by one."""


def pending(sweep: Sweep, say: Callable[[str], None]) -> list[Block]:
    """The blocks that still have to run, without the cells that have a finished record.

    Says how many are skipped, what the records of a few say, and how many come from another or a
    dirty revision.
    """
    if sweep.settings.rerun:
        return list(sweep.blocks)
    store = Store(sweep.settings.results)
    found, elsewhere = _found(sweep, store)
    if elsewhere:
        said = "; ".join(f"{names} for {wanted}" for names, wanted in sorted(set(elsewhere)))
        say(
            f"{part(len(elsewhere), len(sweep.cells), 'cell')} measured on other devices than "
            f"cluster.device.name says ({said}): run again; a cluster that names what ran keeps its records"
        )
    asked = {cell.id: block.settings.repeats for block in sweep.blocks for cell in block.cells}
    done = {id: record for id, record in found.items() if _precise(record, asked[id])}
    total = len(sweep.cells)
    if len(found) > len(done):
        few = len(found) - len(done)
        some = f"{few} of {counted(total, 'cell')} {'has' if few == 1 else 'have'}"
        say(f"{some} fewer than {counted(sweep.repeats, 'repeat')}: run again")
    if done:
        say(f"{part(len(done), total, 'cell')} finished and skipped (rerun=true runs them again)")
    if len(done) <= FEW:
        skipped = [cell for cell in sweep.cells if cell.id in done]
        for number, cell in enumerate(skipped, 1):
            say(f"{line_of(done[cell.id], str(cell), number=number, of=len(skipped))}, from its record")
    foreign = sum(_foreign(record) for record in done.values())
    if foreign:
        say(f"warning: {foreign} of those come from another or a dirty revision of the code")
    blocks = []
    for block in sweep.blocks:
        left = tuple(cell for cell in block.cells if cell.id not in done)
        if left:
            blocks.append(replace(block, cells=left))
    return blocks


def _found(sweep: Sweep, store: Store) -> tuple[dict[str, Record], list[tuple[str, str]]]:
    """Per cell its finished record; and of cells that only ran elsewhere, on what and what was asked."""
    found, elsewhere = {}, []
    for cell in sweep.cells:
        record = store.finished(cell.id)
        ran = made_elsewhere(record, cell) if record else ()
        if ran:
            record = store.finished(cell.id, lambda one, cell=cell: not made_elsewhere(one, cell))  # type: ignore[misc]
            if record is None:
                elsewhere.append((", ".join(ran), cell.cluster.device.name))
        if record is not None:
            found[cell.id] = record
    return found, elsewhere


def _precise(record: Record, repeats: int) -> bool:
    """Whether a record holds as many repeats as are asked for; what cannot run needs none."""
    return record.status is not Status.OK or count(record.metrics) >= repeats


def _foreign(record: Record) -> bool:
    revision, dirty = code()
    made = record.provenance
    return bool(made["dirty"] or dirty or made["revision"] != revision)
