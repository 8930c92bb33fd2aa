"""What a wrong schedule or program raises, and how it shows the place."""

from __future__ import annotations

from collections.abc import Sequence

from bitpipe.schedule.action import Action

_BEFORE, _AFTER = 4, 4


class ProgramError(ValueError):
    """A schedule or program that cannot run, or would compute the wrong thing.

    Attributes:
        reason: one line.
        grid: the surroundings of the failing step, one row per device, ``>`` before each marked step.
    """

    def __init__(self, reason: str, grid: str = "") -> None:
        self.reason = reason
        self.grid = grid
        super().__init__(f"{reason}\n{grid}" if grid else reason)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.reason, self.grid)


def stuck(rows: Sequence[Sequence[Action]], positions: Sequence[int], reason: str) -> ProgramError:
    """An error that marks where every unfinished device stands."""
    marks = [p if p < len(row) else None for p, row in zip(positions, rows, strict=True)]
    return ProgramError(reason, grid(rows, marks))


def at(rows: Sequence[Sequence[Action]], device: int, position: int, reason: str) -> ProgramError:
    """An error that marks one step of one device."""
    marks = [position if row == device else None for row in range(len(rows))]
    return ProgramError(f"device {device}, step {position}: {reason}", grid(rows, marks, position))


def grid(rows: Sequence[Sequence[Action]], marks: Sequence[int | None], centre: int = 0) -> str:
    """Rows of actions around the marked steps, one line per device."""
    lines = []
    for device, (row, mark) in enumerate(zip(rows, marks, strict=True)):
        middle = min(mark if mark is not None else centre, len(row))
        first = max(0, middle - _BEFORE)
        cells = [
            (">" if position == mark else " ") + str(row[position])
            for position in range(first, min(len(row), middle + _AFTER + 1))
        ]
        head = "…" if first else ""
        tail = "…" if middle + _AFTER + 1 < len(row) else ""
        done = " (done)" if mark is None and not centre else ""
        lines.append(f"device {device:>3} [{first:>4}] {head}{' '.join(cells)}{tail}{done}")
    return "\n".join(lines)
