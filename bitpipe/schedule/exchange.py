"""Exchange with torch.distributed.pipelining: its compute-only schedule CSV.

One row per rank, one action per cell, ``2F0`` for the forward of micro-batch 0 at stage 2; B, I and
W mean what they mean here, an empty cell is idle time, and ``(2F1;5B0)OVERLAP_F_B`` holds two
actions. It has one pipe: stages are numbered once, so a bidirectional schedule cannot be written.
"""

from __future__ import annotations

import csv
import io
import re

from bitpipe.errors import InputError
from bitpipe.schedule.action import DOWN, Action, Kind
from bitpipe.schedule.schedule import Schedule

_CELL = re.compile(r"(\d{1,18})([FBIW])(\d{1,18})")
_OVERLAP = re.compile(r"\((.*)\)OVERLAP_F_B")


def to_torch_csv(schedule: Schedule) -> str:
    """The schedule as text that ``torch.distributed.pipelining`` loads.

    Raises:
        InputError: the schedule has two pipes.
    """
    if schedule.placement.bidirectional:
        raise InputError(
            "method",
            schedule.method,
            "torch.distributed.pipelining numbers stages once: one direction only",
            "nearest: 1f1b_int",
        )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in schedule.orders:
        writer.writerow(f"{action.stage}{action.kind.value}{action.micro_batch}" for action in row)
    return out.getvalue()


def from_torch_csv(text: str, source: str = "csv") -> list[list[Action]]:
    """Rows of actions from such a text; see :func:`bitpipe.schedule.schedule_from_rows`.

    Args:
        source: what errors call the text.

    Raises:
        InputError: a cell is not a compute action; the message names the line.
    """
    reader = csv.reader(io.StringIO(text))
    rows = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append([action for cell in row for action in _actions(cell)])
    except InputError as error:
        key = f"{source} line {reader.line_num}: {error.key}"
        raise InputError(key, error.value, error.allowed, error.hint) from error
    except csv.Error as error:
        raise InputError("csv", source, f"line {reader.line_num}: {error}") from error
    return rows


def _actions(cell: str) -> list[Action]:
    cell = cell.strip()
    if not cell:
        return []
    if overlap := _OVERLAP.fullmatch(cell):
        return [action for part in overlap[1].split(";") for action in _actions(part)]
    found = _CELL.fullmatch(cell)
    if not found:
        raise InputError("csv cell", cell, "expected a compute action, for instance 2F0, 2B0, 2I0 or 2W0")
    return [Action(Kind(found[2]), int(found[3]), int(found[1]), DOWN)]
