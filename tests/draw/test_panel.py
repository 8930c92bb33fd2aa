import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitpipe.draw.panel import Panel, lanes, time_label
from bitpipe.errors import InputError
from bitpipe.schedule import Action, Event, Kind, Placement
from tests.draw.panels import panel


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30))
def test_events_of_one_lane_never_overlap_and_all_are_placed(spans):
    events = [Event(0, Action(Kind.SYNC, -1, k), a, a + b) for k, (a, b) in enumerate(spans)]
    placed = lanes(events)
    assert sorted(event.action.stage for event, _ in placed) == list(range(len(events)))
    for event, lane in placed:
        for other, same in placed:
            if other is not event and same == lane:
                assert event.end <= other.start or other.end <= event.start


def test_rows_are_devices_of_one_pipeline_and_ranks_of_several():
    one = panel()
    assert one.names == ("device 0", "device 1", "device 2", "device 3")
    from dataclasses import replace

    both = replace(one, timeline=replace(one.timeline, devices=8))
    assert both.names[7] == "rank 7"


def test_row_names_must_fit_the_rows():
    with pytest.raises(InputError, match="one name for each of 4 rows"):
        Panel(timeline=panel().timeline, placement=panel().placement, rows=("only one",))


def test_the_time_axis_always_has_a_unit():
    assert time_label("s") == "time (s)"


def test_the_unit_is_a_devices_share_of_the_model_and_not_a_stage_which_is_less_with_chunks():
    assert time_label("stage forward") == "time (1 = one forward of 1/D of the model)"
    boxes = panel("bitpipe").boxes  # v=2: a stage is half of a device's share
    assert {event.end - event.start for event in boxes} == {0.5, 1.0}


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (((0, 1, 1, 0),), [0, 0, 1, 1]),
        (((0, 0, 1, 1),), [0, 1, 0, 1]),
        (((1, 0, 0, 0, 1, 1),), [0, 0, 1, 2, 1, 2]),
    ],
)
def test_a_chunk_is_counted_on_its_device_wherever_its_stages_lie(routes, expected):
    timeline = panel("dapple", 2, 2).timeline
    placed = Panel(timeline=timeline, placement=Placement(name="own", depth=2, routes=routes))
    assert [placed.chunk(Action(Kind.F, 0, stage)) for stage in range(len(routes[0]))] == expected
