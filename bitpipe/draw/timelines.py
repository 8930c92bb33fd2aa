"""Timelines as pictures: a row per device, a numbered box per action, syncs below the row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from bitpipe.draw.look import IDLE, INK, PAPER, SYNC_FILL, TIE_FILL, WORDS, Look, look, words
from bitpipe.draw.panel import GRADIENT_SYNC, Panel, time_label
from bitpipe.draw.sheet import EDGE, LEFT, RIGHT, TITLE, Part, sheet, text_width
from bitpipe.errors import InputError
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.timeline import Event

ROW, ROW_GAP, LANE, AXIS = 0.25, 0.07, 0.10, 0.45  # inches
NARROWEST, WIDEST = 6.9, 14.0
Rectangle = tuple[float, float, float, float]


def draw_timelines(panels: Sequence[Panel], *, width: float | None = None) -> Figure:
    """Draw ``panels`` one below the other on a shared time axis, with one legend.

    Args:
        panels: at least one; all in the same unit of time.
        width: inches; by default wide enough for the numbers in the narrowest boxes.

    Raises:
        InputError: no panel, or panels in different units.
    """
    return sheet(timeline_parts(panels, width=width), width or natural_width(panels))


def timeline_parts(panels: Sequence[Panel], *, width: float | None = None) -> list[Part]:
    """The parts of :func:`draw_timelines`, to be stacked with others."""
    units = {panel.timeline.unit for panel in panels}
    if len(units) != 1:
        raise InputError("panels", sorted(units), "timelines on one axis need one unit of time")
    span = max(panel.span for panel in panels) or 1.0
    size = _number_size(panels, ((width or natural_width(panels)) - 2 * EDGE - LEFT - RIGHT) / span)
    chunks = max(panel.placement.chunks for panel in panels)
    drawn: list[Part] = [
        TimelinePart(panel=panel, span=span, number_size=size, chunks=chunks, axis=panel is panels[-1])
        for panel in panels
    ]
    return [*drawn, LegendPart(panels=tuple(panels))]


def natural_width(panels: Sequence[Panel]) -> float:
    """Inches that let the numbers of the narrowest boxes be read, within reason."""
    boxes = [event for panel in panels for event in panel.timeline.compute]
    narrowest = min((e.end - e.start for e in boxes if e.end > e.start), default=1.0)
    digits = max((len(str(e.action.micro_batch)) for e in boxes), default=1)
    span = max((panel.span for panel in panels), default=1.0)
    wanted = span / narrowest * (0.07 + 0.07 * digits) + LEFT + RIGHT + 2 * EDGE
    return min(max(wanted, NARROWEST), WIDEST)


@dataclass(frozen=True, kw_only=True)
class TimelinePart:
    """One panel.

    Attributes:
        panel: what to draw.
        span: time at the right end of the axis, shared with other parts.
        number_size: points, for the micro-batch numbers; 0 for none.
        chunks: how many chunks are told apart on the whole sheet.
        axis: whether to draw the time axis below.
    """

    panel: Panel
    span: float
    number_size: float
    chunks: int
    axis: bool = True

    @property
    def _pitch(self) -> float:
        return ROW + ROW_GAP + self.panel.lanes * LANE

    def height(self, width: float) -> float:
        title = TITLE if self.panel.title else 0.0
        return title + self.panel.timeline.devices * self._pitch + (AXIS if self.axis else 0.0)

    def paint(self, axes: Axes, width: float) -> None:
        """Rows, boxes, numbers, syncs, the makespan line, and the axis."""
        timeline = self.panel.timeline
        top = TITLE if self.panel.title else 0.0
        if self.panel.title:
            axes.text(0, top * 0.4, self.panel.title, fontsize=9, fontweight="bold", va="center")
        scale = (width - LEFT - RIGHT) / self.span

        def x(time: float) -> float:
            return LEFT + time * scale

        rows = [top + row * self._pitch for row in range(timeline.devices)]
        bottom = top + timeline.devices * self._pitch
        frames = [_corners(x(0), y, x(self.panel.span), y + ROW) for y in rows]
        axes.add_collection(
            PolyCollection(frames, facecolors=IDLE, edgecolors="#9a9a9a", linewidths=0.5, zorder=0)
        )
        for name, y in zip(self.panel.names, rows, strict=True):
            axes.text(LEFT - 0.08, y + ROW / 2, name, fontsize=8, ha="right", va="center")
        boxes: dict[Look, list[Rectangle]] = defaultdict(list)
        for event in self.panel.boxes:
            appearance = look(event.action, self.panel.chunk(event.action), self.chunks)
            y = rows[event.device]
            rectangle = (x(event.start), y, x(event.end), y + ROW)
            boxes[appearance].append(rectangle)
            if event.action.is_compute:
                self._number(axes, event, rectangle, appearance)
        for appearance, rectangles in boxes.items():
            paint_boxes(axes, appearance, rectangles)
        for y, row in zip(rows, self.panel.sync_bars, strict=True):
            for event, lane in row:
                upper = y + ROW + 0.015 + lane * LANE
                _paint_sync(axes, event, (x(event.start), upper, x(event.end), upper + LANE - 0.015))
        end = x(self.panel.span)
        axes.plot(
            [end, end], [top - 0.03, bottom - ROW_GAP / 2], color=INK, linewidth=0.8, linestyle=(0, (3, 2))
        )
        axes.text(end + 0.05, top + ROW / 2, f"{self.panel.span:.4g}", fontsize=8, va="center", ha="left")
        if self.axis:
            self._axis(axes, x, bottom)

    def _number(self, axes: Axes, event: Event, rectangle: Rectangle, appearance: Look) -> None:
        text = str(event.action.micro_batch)
        if not self.number_size or text_width_of_digits(text, self.number_size) > rectangle[2] - rectangle[0]:
            return
        axes.text(
            (rectangle[0] + rectangle[2]) / 2,
            (rectangle[1] + rectangle[3]) / 2,
            text,
            fontsize=self.number_size,
            ha="center",
            va="center_baseline",
            color=appearance.ink,
            fontweight="bold" if appearance.up else "normal",
            fontstyle="italic" if appearance.up else "normal",
            zorder=5,
            path_effects=[withStroke(linewidth=1.6, foreground=appearance.fill)] if appearance.up else None,
        )

    def _axis(self, axes: Axes, x: Callable[[float], float], bottom: float) -> None:
        axes.plot([x(0), x(self.span)], [bottom, bottom], color=INK, linewidth=0.8)
        for tick in MaxNLocator(nbins=10, steps=[1, 2, 5, 10]).tick_values(0, self.span):
            if 0 <= tick <= self.span * (1 + 1e-9):
                axes.plot([x(tick), x(tick)], [bottom, bottom + 0.05], color=INK, linewidth=0.8)
                axes.text(x(tick), bottom + 0.07, f"{tick:.6g}", fontsize=8, ha="center", va="top")
        label = time_label(self.panel.timeline.unit)
        axes.text((x(0) + x(self.span)) / 2, bottom + 0.24, label, fontsize=8, ha="center", va="top")


@dataclass(frozen=True, kw_only=True)
class LegendPart:
    """The looks that occur in ``panels``: a column per kind and direction, a row per chunk."""

    panels: tuple[Panel, ...]

    LINE = 0.19
    SIZE = 7.0

    def _columns(self) -> list[list[tuple[Look | str, str]]]:
        both = any(panel.placement.bidirectional for panel in self.panels)
        chunks = max(panel.placement.chunks for panel in self.panels)
        order = [*WORDS]
        seen = {
            (order.index(event.action.kind), event.action.pipe, panel.chunk(event.action))
            for panel in self.panels
            for event in panel.timeline.compute
        }
        columns: dict[tuple[int, int], list[tuple[Look | str, str]]] = defaultdict(list)
        for kind, pipe, chunk in sorted(seen):
            action = Action(order[kind], 0, 0, pipe)
            entry = look(action, chunk, chunks), words(action, chunk, chunks, both)
            columns[kind, pipe].append(entry)
        kinds_drawn = self._kinds
        singles: list[tuple[Look | str, str]] = [(IDLE, "idle (bubble)")]
        if Kind.SYNC in kinds_drawn:
            singles.append((SYNC_FILL, "gradient all-reduce of a stage"))
        if Kind.TIE in kinds_drawn:
            singles.append((TIE_FILL, "all-reduce of the tied embedding"))
        if Kind.STEP in kinds_drawn:
            singles.append((look(Action(Kind.STEP), 0, 1), "optimizer step"))
        return [*columns.values(), *([single] for single in singles)]

    @property
    def _kinds(self) -> set[Kind]:
        return set().union(*(panel.kinds for panel in self.panels))

    def _place(self, width: float) -> tuple[list[tuple[float, float, Look | str, str]], float]:
        """(x, y, look, text) of every entry, columns wrapped to ``width``; and the height."""
        placed = []
        left, top, lowest = 0.0, 0.0, 0.0
        for column in self._columns():
            wide = 0.36 + max(text_width(text, self.SIZE) for _, text in column) + 0.12
            if left and left + wide > width:
                left, top = 0.0, lowest + 0.06
            for line, (appearance, text) in enumerate(column):
                placed.append((left, top + line * self.LINE, appearance, text))
                lowest = max(lowest, top + (line + 1) * self.LINE)
            left += wide
        return placed, lowest + self.LINE

    def height(self, width: float) -> float:
        return self._place(width)[1]

    def paint(self, axes: Axes, width: float) -> None:
        """Swatches drawn exactly as the boxes, each with its words; a note on the numbers."""
        placed, height = self._place(width)
        for left, top, appearance, text in placed:
            rectangle = (left, top, left + 0.3, top + self.LINE - 0.035)
            if isinstance(appearance, Look):
                paint_boxes(axes, appearance, [rectangle])
            else:
                axes.add_collection(
                    PolyCollection(
                        [_corners(*rectangle)], facecolors=appearance, edgecolors="#9a9a9a", linewidths=0.5
                    )
                )
            axes.text(left + 0.36, top + self.LINE / 2 - 0.02, text, fontsize=self.SIZE, va="center")
        note = "Numbers in boxes are micro-batches, counted from 0."
        if self._kinds & GRADIENT_SYNC:
            note += " Numbers in sync bars are stages."
        axes.text(0, height - self.LINE / 2, note, fontsize=self.SIZE, va="center", color="#444444")


def paint_boxes(axes: Axes, appearance: Look, rectangles: Sequence[Rectangle]) -> None:
    """Draw boxes of one look: fill, hatch of the up direction, bands of backwards."""
    narrowest = min(x1 - x0 for x0, _, x1, _ in rectangles)
    boxes = PolyCollection(
        [_corners(*r) for r in rectangles],
        facecolors=appearance.fill,
        edgecolors=INK,
        linewidths=min(0.5, 0.08 * narrowest * 72),  # lest outlines hide the fill of narrow boxes
        zorder=2,
    )
    if appearance.up:
        boxes.set_hatch("/////")
        boxes.set_hatchcolor(appearance.hatch)
        boxes.set_hatch_linewidth(0.9)
    axes.add_collection(boxes)
    for band in range(appearance.bands):
        lines = [
            [(x0, y), (x1, y)] for x0, y0, x1, y1 in rectangles for y in [(y1 - 0.022, y0 + 0.022)[band]]
        ]
        axes.add_collection(
            LineCollection(lines, colors=appearance.ink, linewidths=2.2, capstyle="butt", zorder=3)
        )


def _paint_sync(axes: Axes, event: Event, rectangle: Rectangle) -> None:
    fill = SYNC_FILL if event.action.kind is Kind.SYNC else TIE_FILL
    axes.add_collection(
        PolyCollection([_corners(*rectangle)], facecolors=fill, edgecolors=PAPER, linewidths=0.5, zorder=2)
    )
    text = str(event.action.stage)
    if text_width_of_digits(text, 5.5) < rectangle[2] - rectangle[0]:
        middle = (rectangle[0] + rectangle[2]) / 2, (rectangle[1] + rectangle[3]) / 2
        axes.text(*middle, text, fontsize=5.5, color=PAPER, ha="center", va="center_baseline", zorder=5)


def _corners(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def text_width_of_digits(text: str, size: float) -> float:
    """Width in inches of a number at ``size`` points, a little space included."""
    return (0.70 * len(text) + 0.15) * size / 72


def _number_size(panels: Sequence[Panel], inches_per_unit: float) -> float:
    """The largest size up to 8 points at which the narrowest box holds its number; 0 if too small."""
    size = 8.0
    for panel in panels:
        for event in panel.timeline.compute:
            wide = (event.end - event.start) * inches_per_unit
            size = min(size, wide * 72 / (0.70 * len(str(event.action.micro_batch)) + 0.15))
    return size if size >= 4.5 else (4.5 if _some_fit(panels, inches_per_unit) else 0.0)


def _some_fit(panels: Sequence[Panel], inches_per_unit: float) -> bool:
    return any(
        (event.end - event.start) * inches_per_unit > text_width_of_digits(str(event.action.micro_batch), 4.5)
        for panel in panels
        for event in panel.timeline.compute
    )
