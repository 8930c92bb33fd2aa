import itertools
import json
from collections import defaultdict
from dataclasses import replace

import pytest

from bitpipe.draw import Panel
from bitpipe.draw.trace import trace, trace_json
from bitpipe.schedule import Action, Event, Kind, ScheduleSpec, generate, lower, parse_action
from bitpipe.simulate import simulate_units
from tests.draw.panels import panel


def slices(document):
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def test_every_event_is_a_slice_that_starts_and_ends_when_it_did():
    drawn = panel(sync=1.5)
    found = {(s["pid"], s["name"]): (s["ts"], s["dur"]) for s in slices(trace([drawn]))}
    assert len(found) == len(drawn.timeline.events)
    for event in drawn.timeline.events:
        start, duration = found[event.device, str(event.action)]
        assert start == pytest.approx(event.start * 1000)
        assert duration == pytest.approx((event.end - event.start) * 1000)


def test_slices_of_one_thread_never_overlap():
    threads = defaultdict(list)
    for s in slices(trace([panel(sync=1.5), panel("chimera")])):
        threads[s["pid"], s["tid"]].append((s["ts"], s["ts"] + s["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_rows_of_several_panels_are_processes_of_their_own():
    document = trace([panel(title="one"), panel(title="two")])
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert names == [f"{title}: device {d}" for title in ("one", "two") for d in range(4)]


def test_the_file_says_unit_and_origin():
    about = trace([panel()])["otherData"]
    assert about == {"unit": ["stage forward"], "microseconds_per_unit": [1000.0], "origin": ["simulated"]}


def test_a_transfer_is_an_arrow_to_its_consumer():
    drawn = panel("dapple", 2, 2)
    send = Event(0, Action(Kind.SEND_F, 0, 1), 1.0, 1.0)
    timeline = replace(drawn.timeline, events=(*drawn.timeline.events, send))
    events = trace([replace(drawn, timeline=timeline)])["traceEvents"]
    begin, end = (next(e for e in events if e["ph"] == ph) for ph in "sf")
    assert begin["id"] == end["id"]
    assert (begin["pid"], begin["ts"], end["pid"], end["ts"]) == (0, 1000.0, 1, 1000.0)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("method", ["dapple", "bitpipe"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_every_transfer_stays_in_its_pipeline_group_and_ends_where_it_is_used(method, split, width):
    schedule = generate(ScheduleSpec(method=method, depth=4, micro_batches=4, split_backward=split))
    timeline = simulate_units(lower(schedule, sync="none"), transfer=0.25, width=width)
    drawn = Panel(timeline=timeline, placement=schedule.placement)
    events = trace([drawn])["traceEvents"]
    ends = {e["id"]: e["pid"] for e in events if e["ph"] == "f"}
    begins = {e["id"]: (e["pid"], e["name"]) for e in events if e["ph"] == "s"}
    sent = [e for e in timeline.events if e.action.kind in (Kind.SEND_F, Kind.SEND_B)]
    assert len(begins) == len(ends) == len(sent) > 0
    for number, (pid, name) in begins.items():
        action = parse_action(name)
        device = schedule.placement.device(action.pipe, action.stage)
        assert ends[number] == pid // 4 * 4 + device


def test_memory_is_a_counter():
    drawn = panel("dapple", 2, 2)
    timeline = replace(drawn.timeline, memory=(((0.0, 5.0), (1.0, 7.0)), ()))
    counters = [e for e in trace([replace(drawn, timeline=timeline)])["traceEvents"] if e["ph"] == "C"]
    assert [(c["ts"], c["args"]["bytes"]) for c in counters] == [(0.0, 5.0), (1000.0, 7.0)]


def test_it_is_strict_json_and_deterministic():
    text = trace_json([panel()])
    assert json.loads(text)["displayTimeUnit"] == "ms"
    assert text == trace_json([panel()])
