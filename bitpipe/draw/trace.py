"""Timelines in the Chrome trace event format, which Perfetto and chrome://tracing open.

Source of the format: "Trace Event Format", the Catapult project.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bitpipe.draw.look import WORDS
from bitpipe.draw.panel import Panel, lanes
from bitpipe.schedule.action import Action, Kind, pipe_mark
from bitpipe.schedule.timeline import Event

# Microseconds of trace per unit of the timeline: a stage's forward is shown as a millisecond.
MICROSECONDS = {"stage forward": 1000.0, "s": 1e6}


def trace(panels: Sequence[Panel]) -> dict[str, Any]:
    """One process per device of each panel; a thread for compute, one per lane of communication.

    Transfers become arrows from SEND to the action that consumes them, in the same pipeline group;
    memory, where known, a counter. ``otherData`` says what a microsecond stands for and who told the time.
    """
    events: list[dict[str, Any]] = []
    first = 0
    for panel in panels:
        events += _panel(panel, first)
        first += panel.timeline.devices
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "unit": [panel.timeline.unit for panel in panels],
            "microseconds_per_unit": [_scale(panel) for panel in panels],
            "origin": [panel.timeline.origin.value for panel in panels],
        },
        "traceEvents": events,
    }


def trace_json(panels: Sequence[Panel]) -> str:
    """:func:`trace` as text, the same for the same timelines."""
    return json.dumps(trace(panels), allow_nan=False, separators=(",", ":")) + "\n"


def _panel(panel: Panel, first: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    scale = _scale(panel)
    depth = panel.placement.depth  # rows are device after device of each pipeline group
    consumers = {(event.device // depth, event.action): event for event in panel.timeline.compute}
    flow = first << 24
    for row, name in enumerate(panel.names):
        pid = first + row
        title = f"{panel.title}: {name}" if panel.title else name
        out.append(_meta(pid, 0, "process_name", title))
        out.append(
            {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
        )
        out.append(_meta(pid, 0, "thread_name", "compute"))
        mine = [event for event in panel.timeline.events if event.device == row]
        streams = [event for event in mine if not _computes(event)]
        placed = [(event, 0) for event in mine if _computes(event)]
        placed += [(event, lane + 1) for event, lane in lanes(streams)]
        for lane in sorted({lane for _, lane in placed if lane}):
            out.append(_meta(pid, lane, "thread_name", f"communication {lane}"))
        for event, lane in sorted(placed, key=lambda item: (item[1], item[0].start, item[0].end)):
            out.append(_slice(panel, event, pid, lane, scale))
            named = (consumers.get((row // depth, action)) for action in _consumers(event))
            target = next(filter(None, named), None)
            if target is not None:
                flow += 1
                arrow = {"cat": "transfer", "name": str(event.action), "id": flow}
                out.append({"ph": "s", "pid": pid, "tid": lane, "ts": event.start * scale, **arrow})
                end = {"pid": first + target.device, "tid": 0, "ts": target.start * scale}
                out.append({"ph": "f", "bp": "e", **end, **arrow})
        for time, used in panel.timeline.memory[row] if panel.timeline.memory else ():
            args = {"bytes": used}
            out.append({"ph": "C", "pid": pid, "name": "memory", "ts": time * scale, "args": args})
    return out


def _computes(event: Event) -> bool:
    return event.action.is_compute or event.action.kind is Kind.STEP


_CONSUMERS = {Kind.SEND_F: (Kind.F,), Kind.SEND_B: (Kind.B, Kind.I)}


def _consumers(event: Event) -> list[Action]:
    """The compute actions that a SEND may serve: a gradient's is I where the backward is split."""
    return [event.action._replace(kind=kind) for kind in _CONSUMERS.get(event.action.kind, ())]


def _slice(panel: Panel, event: Event, pid: int, tid: int, scale: float) -> dict[str, Any]:
    action = event.action
    args: dict[str, Any] = {}
    if action.stage >= 0:
        args = {"stage": action.stage, "chunk": panel.chunk(action), "pipe": pipe_mark(action.pipe)}
    if action.micro_batch >= 0:
        args["micro_batch"] = action.micro_batch
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": event.start * scale,
        "dur": (event.end - event.start) * scale,
        "name": str(action),
        "cat": WORDS.get(action.kind, action.kind.value),
        "args": args,
    }


def _meta(pid: int, tid: int, key: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": key, "args": {"name": name}}


def _scale(panel: Panel) -> float:
    return MICROSECONDS.get(panel.timeline.unit, 1e6)
