"""What a black-and-white print must still tell."""

from itertools import pairwise, product

import pytest
from PIL import ImageColor

from bitpipe.draw.look import IDLE, look, oklch, words
from bitpipe.schedule import Action, Kind

KINDS = (Kind.F, Kind.B, Kind.I, Kind.W)


def grey(colour):
    """Luma, 0 … 255, as a printer or an image viewer computes it."""
    red, green, blue = ImageColor.getrgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("chunks", [2, 3, 4])
def test_chunks_differ_in_grey_whatever_the_kind_and_direction(chunks):
    for kind, pipe in product(KINDS, (0, 1)):
        greys = [grey(look(Action(kind, 0, 0, pipe), chunk, chunks).fill) for chunk in range(chunks)]
        assert all(a - b > 15 for a, b in pairwise(greys)), (kind, pipe, greys)


def test_a_chunk_is_equally_light_in_every_hue():
    for chunk in range(4):
        greys = [grey(look(Action(k, 0, 0, p), chunk, 4).fill) for k, p in product(KINDS, (0, 1))]
        assert max(greys) - min(greys) < 25


def test_no_chunk_is_as_light_as_idle_time():
    lightest = max(grey(look(Action(k, 0, 0, p), 0, 4).fill) for k, p in product(KINDS, (0, 1)))
    assert lightest < grey(IDLE) - 15


def test_direction_and_kind_have_a_channel_besides_colour():
    marks = {
        (look(Action(kind, 0, 0, pipe), 0, 2).up, look(Action(kind, 0, 0, pipe), 0, 2).bands)
        for kind, pipe in product((Kind.F, Kind.B, Kind.W), (0, 1))
    }
    assert len(marks) == 6


def test_no_two_looks_share_a_colour():
    fills = [
        look(Action(k, 0, 0, p), c, 4).fill for k, p, c in product((Kind.F, Kind.B, Kind.W), (0, 1), range(4))
    ]
    assert len(set(fills)) == len(fills)


def test_lightness_stays_when_the_screen_cannot_show_the_chroma():
    assert oklch(0.5, 0.0, 0.0) == "#636363"
    assert abs(grey(oklch(0.9, 0.4, 250.0)) - grey(oklch(0.9, 0.0, 0.0))) < 15


def test_words_name_only_what_differs():
    assert words(Action(Kind.F, 0, 0, 0), 0, 1, bidirectional=False) == "forward"
    assert words(Action(Kind.W, 0, 0, 1), 1, 2, bidirectional=True) == "weight gradient, up, chunk 1"
