"""Interactive timelines as HTML that needs nothing else: no library, no request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any

from bitpipe.draw.look import IDLE, INK, PAPER, SYNC_FILL, TIE_FILL, WORDS, Look, look, words
from bitpipe.draw.panel import Panel, is_sync, time_label
from bitpipe.schedule.action import Action, Kind, pipe_mark
from bitpipe.schedule.timeline import Event

HELP = "Wheel or + and − zoom, drag or arrow keys move, double click or 0 shows all; point at a box."


def page(panels: Sequence[Panel], title: str) -> str:
    """A whole page with one drawing of ``panels`` on a shared time axis."""
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{assets()}\n{fragment(panels)}\n</body>\n</html>\n"
    )


@lru_cache(maxsize=1)
def assets() -> str:
    """Style and script, needed once on a page that holds any number of fragments."""
    folder = files("bitpipe.draw")
    style = (folder / "timeline.css").read_text(encoding="utf-8")
    script = (folder / "timeline.js").read_text(encoding="utf-8")
    return f"<style>\n{style}</style>\n<script>\n{script}</script>"


def fragment(panels: Sequence[Panel]) -> str:
    """One drawing, to be placed anywhere in a page that also has :func:`assets`."""
    data, legend = _data(panels)
    # A script element ends at the first "</script", whatever the JSON around it says.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    keys = "".join(
        f'<span class="bp-key"><canvas data-look="{index}"></canvas>{escape(label)}</span>'
        for index, label in legend
    )
    names = "; ".join(panel.title for panel in panels if panel.title) or "a pipeline schedule"
    return (
        f'<div class="bp-timeline">\n<script type="application/json">{text}</script>\n'
        '<div class="bp-tools"><button value="+" title="zoom in">+</button>'
        '<button value="-" title="zoom out">−</button><button value="0" title="show all">all</button>'
        f'<span class="bp-note">{HELP}</span></div>\n'
        f'<canvas tabindex="0" role="img" aria-label="Timeline of {escape(names, quote=True)}"></canvas>\n'
        f'<div class="bp-tools">{keys}</div>\n<div class="bp-tip" hidden></div>\n</div>'
    )


def _data(panels: Sequence[Panel]) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """What the script draws, and the legend as (index into looks, words)."""
    chunks = max(panel.placement.chunks for panel in panels)
    both = any(panel.placement.bidirectional for panel in panels)
    looks: dict[Look, tuple[int, str]] = {}

    def index(event: Event, panel: Panel) -> int:
        action = event.action
        if is_sync(event):
            tie = action.kind is Kind.TIE
            appearance = Look(fill=TIE_FILL if tie else SYNC_FILL, hatch=PAPER, ink=PAPER, up=False, bands=0)
            text = "all-reduce of the tied embedding" if tie else "gradient all-reduce of a stage"
        else:
            chunk = panel.chunk(action)
            appearance, text = look(action, chunk, chunks), words(action, chunk, chunks, both)
        return looks.setdefault(appearance, (len(looks), text))[0]

    drawn = []
    for panel in panels:
        placed = [(event, -1) for event in panel.boxes]
        placed += [pair for row in panel.sync_bars for pair in row]
        rows = [
            (event.device, lane, index(event, panel), _number(event), *event[2:], _tip(event, panel))
            for event, lane in placed
        ]
        drawn.append(
            {
                "title": panel.title,
                "rows": panel.names,
                "lanes": panel.lanes,
                "span": panel.span,
                "events": rows,
            }
        )
    idle = Look(fill=IDLE, hatch=IDLE, ink=INK, up=False, bands=0)
    looks.setdefault(idle, (len(looks), "idle (bubble)"))
    data = {
        "span": max(panel.span for panel in panels) or 1.0,
        "time": time_label(panels[0].timeline.unit),
        "looks": [asdict(appearance) for appearance in looks],
        "panels": drawn,
    }
    first_words = [*WORDS.values(), "optimizer", "gradient all-reduce", "all-reduce", "idle"]

    def rank(entry: tuple[int, str]) -> tuple[int, str]:
        return next(k for k, start in enumerate(first_words) if entry[1].startswith(start)), entry[1]

    return data, sorted(looks.values(), key=rank)


def _number(event: Event) -> str:
    action: Action = event.action
    if is_sync(event):
        return str(action.stage)
    return str(action.micro_batch) if action.is_compute else ""


def _tip(event: Event, panel: Panel) -> str:
    action = event.action
    if not action.is_compute:
        return f"{action}: " + ("optimizer step" if action.kind is Kind.STEP else f"stage {action.stage}")
    where = f"stage {action.stage} (chunk {panel.chunk(action)}), pipe {pipe_mark(action.pipe)}"
    return f"{action}: {WORDS[action.kind]}, micro-batch {action.micro_batch}, {where}"
