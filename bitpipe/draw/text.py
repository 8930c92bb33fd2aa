"""A timeline in a terminal: plain text, no colour needed, true to scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from bitpipe.draw.look import WORDS
from bitpipe.draw.panel import UNIT, Panel
from bitpipe.errors import InputError
from bitpipe.schedule.action import UP, Action
from bitpipe.schedule.timeline import Event, by_device

IDLE = "."
FILL = "-=+#%*"
NARROWEST = 40  # columns that any drawing needs
MOST_BANDS = 4
MORE = "too long to number the boxes here; every one of them: --out x.html"


def draw_text(panel: Panel, width: int = 100) -> str:
    """Draw one timeline within ``width`` columns; every column is the same stretch of time.

    If all times are multiples of a common step, a step gets as many columns as the labels
    need and the drawing wraps into bands, one below the other. If they are not, or more than
    ``MOST_BANDS`` bands would be needed, the whole timeline is squeezed into one band whose
    columns show what fills most of them; the legend says which of the two it is.

    Raises:
        InputError: ``width`` is too narrow.
    """
    if width < NARROWEST:
        raise InputError("width", width, f"a timeline needs at least {NARROWEST} columns")
    names = [_short(name) for name in panel.names]
    margin = max(len(name) for name in names) + 1
    room = width - margin - 1
    compute = panel.timeline.compute
    end = max((event.end for event in compute), default=0.0)
    if not end:
        return "nothing was computed"
    step = common_step([*(event.start for event in compute), *(event.end for event in compute)])
    rows = by_device(compute, panel.timeline.devices)
    if step is not None:
        label = max(len(_label(event.action)) for event in compute)
        narrowest = min(round((event.end - event.start) / step) for event in compute)
        columns = math.ceil((label + (panel.placement.chunks > 1)) / max(narrowest, 1))
        steps = max(1, room // columns)
        if math.ceil(round(end / step) / steps) <= MOST_BANDS:
            return _bands(panel, names, rows, step=step, columns=columns, steps=steps, end=end)
    return _squeezed(panel, names, rows, room=room, end=end)


def common_step(times: Sequence[float]) -> float | None:
    """The largest step of which every time is a multiple, or None if there is none worth drawing."""
    fractions = {Fraction(time).limit_denominator(64) for time in times}
    if any(abs(float(Fraction(time).limit_denominator(64)) - time) > 1e-9 for time in times):
        return None
    denominator = math.lcm(*(fraction.denominator for fraction in fractions))
    numerator = math.gcd(*(int(fraction * denominator) for fraction in fractions))
    return numerator / denominator if numerator and denominator <= 64 else None


def _bands(
    panel: Panel,
    names: list[str],
    rows: list[list[Event]],
    *,
    step: float,
    columns: int,
    steps: int,
    end: float,
) -> str:
    total = round(end / step)
    # Bands of equal length that start at whole units of time, where the width allows it.
    unit = round(1 / step) if step < 1 and math.isclose(1 / step, round(1 / step)) else 1
    steps = steps // unit * unit or steps
    even = math.ceil(total / math.ceil(total / steps))
    steps = min(steps, math.ceil(even / unit) * unit)
    lines = [_row(panel, row, lambda time: round(time / step) * columns, total * columns) for row in rows]
    margin = max(len(name) for name in names) + 1
    out = []
    for first in range(0, total, steps):
        last = min(first + steps, total)
        out.append(" " * margin + _ruler(first * step, step / columns, (last - first) * columns))
        for name, line in zip(names, lines, strict=True):
            out.append(name.rjust(margin - 1) + " " + line[first * columns : last * columns])
        out.append("")
    scale = f"one column is {step / columns:.4g} {_unit(panel)}"
    return "\n".join([*out, *_legend(panel, scale)])


def _row(panel: Panel, row: list[Event], column: Callable[[float], int], length: int) -> str:
    cells = [IDLE] * length
    for event in row:
        first, last = column(event.start), column(event.end)
        fill = FILL[panel.chunk(event.action) % len(FILL)] if panel.placement.chunks > 1 else "-"
        text = (_label(event.action) + fill * (last - first))[: last - first]
        cells[first:last] = text
    return "".join(cells)


def _squeezed(panel: Panel, names: list[str], rows: list[list[Event]], *, room: int, end: float) -> str:
    margin = max(len(name) for name in names) + 1
    per = end / room
    out = [" " * margin + _ruler(0.0, per, room)]
    for name, row in zip(names, rows, strict=True):
        shares: list[dict[str, float]] = [{} for _ in range(room)]
        for event in row:
            letter = _letter(event.action)
            for k in range(int(event.start / per), min(room, math.ceil(event.end / per))):
                overlap = min(event.end, (k + 1) * per) - max(event.start, k * per)
                shares[k][letter] = shares[k].get(letter, 0.0) + max(overlap, 0.0)
        line = ""
        for share in shares:
            share[IDLE] = per - sum(share.values())
            line += max(share, key=lambda letter: (share[letter], letter))
        out.append(name.rjust(margin - 1) + " " + line)
    scale = f"one column is {per:.4g} {_unit(panel)} and shows what fills most of it"
    return "\n".join([*out, "", *_legend(panel, scale, numbers=False), MORE])


def _ruler(start: float, per_column: float, length: int) -> str:
    cells = [" "] * length
    gap = _tick(per_column)
    tick = math.ceil(start / gap - 1e-9)
    while (column := round((tick * gap - start) / per_column)) < length:
        text = f"|{tick * gap:.6g}"
        if column + len(text) <= length:
            cells[column : column + len(text)] = text
        tick += 1
    return "".join(cells).rstrip()


def _tick(per_column: float) -> float:
    """A round distance in time that leaves at least eight columns between ticks."""
    power = 10.0 ** math.floor(math.log10(per_column * 8))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor / per_column >= 8)


def _legend(panel: Panel, scale: str, *, numbers: bool = True) -> list[str]:
    kinds = {str(event.action.kind): None for event in panel.timeline.compute}
    keys = [f"{kind} {word}" for kind, word in WORDS.items() if kind in kinds]
    if panel.placement.bidirectional:
        more = len(panel.placement.routes) > 2
        keys.append("small letters: pipes u, p3, …" if more else "small letters: up pipe")
    if numbers:
        keys.append("number: micro-batch")
        if panel.placement.chunks > 1:
            keys.append(
                "fill: chunk " + " ".join(f"{k}{FILL[k % len(FILL)]}" for k in range(panel.placement.chunks))
            )
    keys.append(f"{IDLE} idle")
    return ["; ".join(keys), scale]


def _letter(action: Action) -> str:
    return action.kind.value.lower() if action.pipe % 2 == UP else action.kind.value


def _label(action: Action) -> str:
    return f"{_letter(action)}{action.micro_batch}"


def _short(name: str) -> str:
    return name.removeprefix("device ") if name.startswith("device ") else name


def _unit(panel: Panel) -> str:
    return f"({UNIT})" if panel.timeline.unit == "stage forward" else panel.timeline.unit
