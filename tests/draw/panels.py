"""Panels of real schedules, for the tests of this room."""

from dataclasses import replace

from bitpipe.draw import Panel
from bitpipe.schedule import Action, Event, Kind, ScheduleSpec, evaluate, generate


def panel(method="bitpipe", depth=4, micro_batches=4, *, title="", sync=0.0, **more):
    """A panel at unit costs; with ``sync`` each stage's all-reduce of that length is added."""
    schedule = generate(ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches, **more))
    timeline = evaluate(schedule)
    if sync:
        timeline = replace(timeline, events=timeline.events + tuple(_syncs(timeline, sync)))
    return Panel(timeline=timeline, placement=schedule.placement, title=title)


def _syncs(timeline, length):
    last = {}
    for event in timeline.compute:
        key = event.device, event.action.stage, event.action.pipe
        last[key] = max(last.get(key, 0.0), event.end)
    for (device, stage, pipe), end in last.items():
        yield Event(device, Action(Kind.SYNC, -1, stage, pipe), end, end + length)
