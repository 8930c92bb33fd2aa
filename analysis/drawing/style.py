"""One style for all figures, and files that are equal byte by byte for equal content."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib
from matplotlib.figure import Figure

from analysis.drawing.labels import Look
from bitpipe.files import replacing

# One column of a two-column paper, and a full page, in inches.
COLUMN, PAGE = 3.4, 7.0

RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so looks alike everywhere
    "text.parse_math": False,  # a dollar sign in a name or path is one; nothing here is a formula
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "hatch.linewidth": 0.6,
    "patch.linewidth": 0.6,
    "patch.edgecolor": "black",
    "patch.force_edgecolor": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # TrueType, embedded
    "svg.fonttype": "path",  # glyphs as outlines: needs no font where it is read
    "svg.hashsalt": "bitpipe",
    "savefig.dpi": 200,
    "savefig.bbox": "tight",
}
_METADATA = {
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


@contextmanager
def style() -> Iterator[None]:
    """The style, within a ``with`` block: make figures and axes inside it."""
    with matplotlib.rc_context(RC):
        yield


def figure(width: float = PAGE, height: float = 2.6) -> Figure:
    """An empty figure (inches) that belongs to no window; make it inside :func:`style`."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, stem: Path) -> list[Path]:
    """Save ``stem`` as pdf, png and svg, each atomically; the layout is worked out once."""
    paths = []
    with style():
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for suffix, metadata in _METADATA.items():
            path = stem.with_name(f"{stem.name}.{suffix}")
            with replacing(path) as half:
                if suffix == "svg":
                    half.write_bytes(svg(figure))
                else:
                    figure.savefig(half, format=suffix, metadata=metadata)
            paths.append(path)
    return paths


_svgs: WeakKeyDictionary[Figure, bytes] = WeakKeyDictionary()


def svg(figure: Figure) -> bytes:
    """The figure as SVG, drawn once: files and report hold the same bytes."""
    if figure not in _svgs:
        buffer = io.BytesIO()
        with style():
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            figure.savefig(buffer, format="svg", metadata=_METADATA["svg"])
        _svgs[figure] = buffer.getvalue()
    return _svgs[figure]


def bar(look: Look) -> dict[str, Any]:
    """Arguments of ``Axes.bar`` for one series."""
    return {"color": look.colour, "hatch": look.hatch, "edgecolor": "black", "label": look.name}


def line(look: Look) -> dict[str, Any]:
    """Arguments of ``Axes.plot`` for one series."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": look.line,
        "label": look.name,
        "markeredgecolor": "black",
        "markeredgewidth": 0.5,
    }
