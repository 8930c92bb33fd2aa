"""Write timelines to a file; its suffix says how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bitpipe.draw.panel import Panel
from bitpipe.errors import InputError

SUFFIXES = (".svg", ".pdf", ".png", ".html", ".json")


def check_suffix(path: Path, *others: str) -> str:
    """The path's suffix in small letters; ``others`` are what the caller writes itself.

    Raises:
        InputError: nothing is drawn that way.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            "out", path, f"the suffix must be one of {', '.join((*SUFFIXES, *others))}", ".json is a trace"
        )
    return suffix


def write(panels: Sequence[Panel], path: Path) -> None:
    """Draw ``panels`` to SVG, PDF, PNG or interactive HTML, or export a Chrome trace (JSON).

    Raises:
        InputError: unknown suffix, or the file cannot be written.
    """
    suffix = check_suffix(path)
    try:
        if suffix == ".html":
            from bitpipe.draw.html import page

            title = "; ".join(panel.title for panel in panels if panel.title) or "Pipeline schedule"
            path.write_text(page(panels, title), encoding="utf-8")
        elif suffix == ".json":
            from bitpipe.draw.trace import trace_json

            path.write_text(trace_json(panels), encoding="utf-8")
        else:
            # matplotlib takes longer to import than most schedules take to generate.
            from bitpipe.draw.sheet import save
            from bitpipe.draw.timelines import draw_timelines

            save(draw_timelines(panels), path)
    except OSError as error:
        raise InputError("out", path, f"cannot be written: {error.strerror}") from None
