import json
from dataclasses import replace

import pytest

from bitpipe.errors import InputError
from bitpipe.schedule import Action, Event, Kind, ScheduleSpec, Timeline, evaluate, generate


def test_a_timeline_survives_its_document():
    timeline = evaluate(generate(ScheduleSpec(method="bitpipe", depth=4, micro_batches=4)))
    more = (Event(0, Action(Kind.SYNC, -1, 7, 1), 6.5, 8.0), Event(0, Action(Kind.STEP), 14.0, 14.5))
    timeline = replace(timeline, events=timeline.events + more, memory=(((0.0, 1.0), (2.0, 3.0)), (), (), ()))
    assert Timeline.of(json.loads(json.dumps(timeline.document()))) == timeline


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_the_span_is_what_one_device_needs_from_its_first_start_to_its_last_end(depth):
    timeline = evaluate(generate(ScheduleSpec(method="gpipe", depth=depth, micro_batches=2 * depth)))
    assert timeline.span == timeline.makespan == 6 * depth + 3 * (depth - 1)  # the first device's
    forwards = replace(timeline, events=tuple(e for e in timeline.events if e.action.kind is Kind.F))
    assert (forwards.span, forwards.makespan) == (2 * depth, 2 * depth + depth - 1)
    assert replace(timeline, events=()).span == 0.0


@pytest.mark.parametrize("document", [{}, {"devices": "x"}, {"devices": 1, "events": [[0, "F0", 0, 1]]}])
def test_what_is_no_timeline_is_refused(document):
    with pytest.raises(InputError, match="not a timeline"):
        Timeline.of(document)


def test_rows_can_be_put_in_another_order():
    timeline = evaluate(generate(ScheduleSpec(method="dapple", depth=4, micro_batches=4)))
    turned = timeline.reordered([3, 1, 2, 0])
    assert turned.busy(0) == timeline.busy(3)
    assert [e.action for e in turned.events if e.device == 3] == [
        e.action for e in timeline.events if e.device == 0
    ]
    assert turned.reordered([3, 1, 2, 0]) == timeline
