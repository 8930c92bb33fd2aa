"""Pictures: everything is drawn, nothing overlaps, files carry their fonts and no date."""

from dataclasses import replace

import pytest
from matplotlib.text import Text

from bitpipe.draw import write
from bitpipe.draw.sheet import save
from bitpipe.draw.timelines import draw_timelines, natural_width
from bitpipe.errors import InputError
from tests.draw.panels import panel

PANELS = {
    "dapple": lambda: [panel("dapple")],
    "four": lambda: [panel(m, title=m) for m in ("dapple", "1f1b_int", "chimera", "bitpipe")],
    "many chunks": lambda: [panel(title="v=2"), panel(chunks=4, title="v=4")],
    "syncs": lambda: [panel(sync=1.5, title="with sync")],
    "split": lambda: [panel(split_backward=True)],
    "deep": lambda: [panel(depth=16, micro_batches=32)],
}


def texts(figure):
    figure.canvas.draw()
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent()) for t in found]


@pytest.mark.parametrize("name", PANELS)
def test_no_text_overlaps_another_or_leaves_the_page(name):
    figure = draw_timelines(PANELS[name]())
    placed = texts(figure)
    page = figure.bbox
    for text, box in placed:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1 + 1, text
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
    for index, (first, a) in enumerate(placed):
        for second, b in placed[index + 1 :]:
            apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1.5 or b.y1 <= a.y0 + 1.5
            assert apart, (first, second)


def test_every_action_shows_its_micro_batch():
    drawn = panel("bitpipe", 4, 4)
    numbers = [text for text, _ in texts(draw_timelines([drawn])) if text in {"0", "1", "2", "3"}]
    ticks = 2  # 0 and 2 are also on the time axis
    assert len(numbers) == len(drawn.timeline.compute) + ticks


def test_every_sync_shows_its_stage_and_lengthens_the_drawing_to_its_end():
    shown = [text for text, _ in texts(draw_timelines([panel(sync=1.5)]))]
    assert [shown.count(str(stage)) for stage in (5, 7)] == [2, 2]  # one replica per direction
    assert "15.5" in shown


def test_panels_share_the_time_axis():
    figure = draw_timelines([panel("dapple", title="a"), panel("bitpipe", title="b")])
    ends = {text: box.x0 for text, box in texts(figure) if text in {"21", "14"}}
    first, second = panel("dapple"), panel("bitpipe")
    scale = (natural_width([first, second]) - 1.64) * figure.dpi / 21
    assert ends["21"] - ends["14"] == pytest.approx(7 * scale, rel=0.02)


def test_timelines_in_different_units_are_not_put_on_one_axis():
    one = panel()
    seconds = replace(one, timeline=replace(one.timeline, unit="s"))
    with pytest.raises(InputError, match="one unit of time"):
        draw_timelines([one, seconds])


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png"])
def test_the_same_input_gives_the_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        write([panel(sync=1.0)], tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_files_carry_fonts_and_no_date(tmp_path):
    figure = draw_timelines([panel()])
    save(figure, tmp_path / "a.pdf")
    save(figure, tmp_path / "a.svg")
    pdf, svg = (tmp_path / "a.pdf").read_bytes(), (tmp_path / "a.svg").read_text()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf
    assert "dc:date" not in svg
    assert "<text" not in svg  # glyphs are outlines


def test_a_large_schedule_is_drawn_without_numbers_that_do_not_fit(tmp_path):
    write([panel(depth=32, micro_batches=64)], tmp_path / "large.png")
    assert (tmp_path / "large.png").stat().st_size > 10_000
