"""A sheet: parts stacked from top to bottom on one figure, saved the same way every time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

LEFT, RIGHT, EDGE, GAP = 0.85, 0.55, 0.12, 0.12  # inches
TITLE = 0.26
# Fonts travel with the file, and the same drawing gives the same bytes.
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # a dollar sign in a name is one
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "bitpipe",
}
_METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


class Part(Protocol):
    """Something that can be drawn; sizes are inches, y grows downwards."""

    def height(self, width: float) -> float:
        """How high it is when ``width`` wide."""

    def paint(self, axes: Axes, width: float) -> None:
        """Draw into ``axes``, whose coordinates are inches from the top left corner."""


def _inches(figure: Any, position: tuple[float, float, float, float], width: float, height: float) -> Axes:
    axes: Axes = figure.add_axes(position)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    return axes


def sheet(parts: Sequence[Part], width: float) -> Figure:
    """Stack ``parts`` on a figure that is ``width`` inches wide, edges included."""
    inner = width - 2 * EDGE
    heights = [part.height(inner) for part in parts]
    total = sum(heights) + GAP * (len(parts) - 1) + 2 * EDGE
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, total))
        FigureCanvasAgg(figure)
        top = EDGE
        for part, height in zip(parts, heights, strict=True):
            position = (EDGE / width, 1 - (top + height) / total, inner / width, height / total)
            part.paint(_inches(figure, position, inner, height), inner)
            top += height + GAP
    return figure


def save(figure: Figure, path: Path, *, dpi: int = 200) -> None:
    """Write SVG, PDF or PNG by suffix; no dates, so that the same figure gives the same bytes."""
    kind = path.suffix.lstrip(".").lower()
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, format=kind, dpi=dpi, metadata=_METADATA[kind])


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width in inches of ``text`` at ``size`` points."""
    if not text:
        return 0.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    with matplotlib.rc_context(STYLE):
        return float(TextPath((0, 0), text, size=size, prop=font).get_extents().width) / 72
