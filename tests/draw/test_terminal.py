"""The timeline in a terminal: no column more than asked, every column the same time."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitpipe.draw.text import common_step, draw_text
from bitpipe.errors import InputError
from tests.draw.panels import panel


def rows(text):
    """Per device its cells, bands joined."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r" *(\d+) ([A-Za-z0-9.\-=+#%*]+)", line):
            found.setdefault(int(match[1]), []).append(match[2])
    return ["".join(found[device]) for device in sorted(found)]


def test_the_picture_of_the_smallest_bitpipe():
    assert draw_text(panel("bitpipe", 2, 2), 60).splitlines() == [
        "  |0          |2          |4",
        "0 F0-f1-f1=F0=B0====b1====b1----B0----",
        "1 f1-F0-F0=f1=b1====B0====B0----b1----",
        "",
        "F forward; B backward; small letters: up pipe; number: micro-batch; fill: chunk 0- 1=; . idle",
        "one column is 0.1667 (1 = one forward of 1/D of the model)",
    ]


def test_a_timeline_with_numbers_points_nowhere_else():
    assert "--out" not in draw_text(panel("bitpipe", 4, 4), 100)


def test_boxes_are_true_to_scale():
    drawn = rows(draw_text(panel("dapple"), 200))
    assert drawn[3] == "......F0B0--F1B1--F2B2--F3B3--............"[: len(drawn[3])]
    assert all(len(row) == 42 for row in drawn)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gpipe", "dapple", "chimera", "bitpipe"]),
    st.sampled_from([2, 4, 8]),
    st.integers(1, 3),
    st.integers(40, 160),
)
def test_no_line_of_the_drawing_is_wider_than_asked(method, depth, times, width):
    text = draw_text(panel(method, depth, depth * times), width)
    drawing = text.split("\n\nF forward")[0] if "\n\nF forward" in text else text
    assert max(len(line) for line in drawing.splitlines()) <= width


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["dapple", "chimera", "bitpipe"]), st.integers(1, 4))
def test_idle_columns_are_the_bubble_exactly(method, times):
    drawn = panel(method, 4, 4 * times)
    cells = rows(draw_text(drawn, 200))
    share = sum(row.count(".") for row in cells) / sum(len(row) for row in cells)
    assert share == pytest.approx(drawn.timeline.bubble_ratio)


def test_a_timeline_too_long_for_bands_is_squeezed_and_says_so():
    text = draw_text(panel("bitpipe", 8, 64), 80)
    assert "shows what fills most of it" in text
    assert text.endswith("--out x.html")
    assert len(rows(text)[0]) <= 80


def test_measured_times_have_no_common_step():
    drawn = panel("bitpipe")
    events = tuple(e._replace(start=e.start * 0.01371, end=e.end * 0.01371) for e in drawn.timeline.events)
    text = draw_text(replace(drawn, timeline=replace(drawn.timeline, events=events, unit="s")), 80)
    assert re.search(r"one column is \S+ s and shows what fills most", text)


@pytest.mark.parametrize(
    ("times", "step"), [([0, 1.5, 3], 1.5), ([0, 0.5, 2], 0.5), ([1 / 3, 1], 1 / 3), ([0.0123456], None)]
)
def test_common_step(times, step):
    assert common_step(times) == (pytest.approx(step) if step else None)


def test_too_narrow_is_refused():
    with pytest.raises(InputError, match="width=10: a timeline needs at least 40 columns"):
        draw_text(panel(), 10)
