"""How an action looks, in colour and in grey.

Four facts, four channels, each of which survives a black-and-white print:

=====================  ==========================  =============================
fact                   in grey                     in colour, besides
=====================  ==========================  =============================
chunk                  lightness, equal over hues  –
pipe                   up: hatched, bold italic    a hue of its own
forward or backward    backward: band below        a hue of its own
half of a backward     weight gradient: two bands  a hue of its own
=====================  ==========================  =============================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bitpipe.schedule.action import UP, Action, Kind, pipe_word

LIGHTEST, DARKEST, HATCH = 0.90, 0.63, 0.12
INK, PAPER, IDLE, SYNC_FILL, TIE_FILL, STEP_FILL = (
    "#1a1a1a",
    "#ffffff",
    "#f4f4f4",
    "#3d3d3d",
    "#8c8c8c",
    "#5a5a5a",
)
WORDS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.R: "recomputation",
}
_FURTHER = 25.0
"""Degrees between pipes 0 and 2, 1 and 3, … where there are more than two."""
# (kind, pipe) → hue in degrees of OKLCH.
_HUES = {
    (Kind.F, 0): 250.0,
    (Kind.F, 1): 190.0,
    (Kind.B, 0): 75.0,
    (Kind.B, 1): 15.0,
    (Kind.I, 0): 75.0,
    (Kind.I, 1): 15.0,
    (Kind.W, 0): 130.0,
    (Kind.W, 1): 310.0,
    (Kind.R, 0): 280.0,
    (Kind.R, 1): 220.0,
}


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a kind of action is drawn.

    Attributes:
        fill: ``#rrggbb``.
        hatch: colour of the hatch, lighter than ``fill``.
        ink: colour of text and bands.
        up: hatched, and numbered in bold italics.
        bands: dark bands, 0 none, 1 below, 2 below and above.
    """

    fill: str
    hatch: str
    ink: str
    up: bool
    bands: int


def look(action: Action, chunk: int, chunks: int) -> Look:
    """The look of a compute action on chunk ``chunk`` where at most ``chunks`` are told apart."""
    if not action.is_compute:
        return Look(fill=STEP_FILL, hatch=PAPER, ink=PAPER, up=False, bands=0)
    lightness = 0.82 if chunks == 1 else LIGHTEST - (LIGHTEST - DARKEST) * min(chunk / (chunks - 1), 1.0)
    hue = _HUES[action.kind, action.pipe % 2] + _FURTHER * (action.pipe // 2)
    return Look(
        fill=oklch(lightness, 0.10, hue),
        hatch=oklch(min(lightness + HATCH, 1.0), 0.03, hue),
        ink=INK,
        up=action.pipe % 2 == UP,
        bands={Kind.F: 0, Kind.B: 1, Kind.I: 1, Kind.W: 2, Kind.R: 2}[action.kind],
    )


def words(action: Action, chunk: int, chunks: int, bidirectional: bool) -> str:
    """The legend's text for what looks like ``action``."""
    if not action.is_compute:
        return "optimizer step"
    parts = [WORDS[action.kind]]
    if bidirectional:
        parts.append(pipe_word(action.pipe))
    if chunks > 1:
        parts.append(f"chunk {chunk}")
    return ", ".join(parts)


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """``#rrggbb`` of a colour whose lightness (0 … 1) is what the eye sees; hue in degrees.

    Where the screen cannot show so much chroma, chroma gives way and lightness stays.
    Source: the OKLab transform, https://bottosson.github.io/posts/oklab/.
    """
    while True:
        a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
        l_ = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
        m_ = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
        s_ = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
        linear = (
            4.0767416621 * l_ - 3.3077115913 * m_ + 0.2309699292 * s_,
            -1.2684380046 * l_ + 2.6097574011 * m_ - 0.3413193965 * s_,
            -0.0041960863 * l_ - 0.7034186147 * m_ + 1.7076147010 * s_,
        )
        if chroma <= 0 or all(-1e-4 <= channel <= 1 + 1e-4 for channel in linear):
            return "#" + "".join(f"{_encode(channel):02x}" for channel in linear)
        chroma = max(0.0, chroma - 0.005)


def _encode(linear: float) -> int:
    clipped = min(max(linear, 0.0), 1.0)
    value = 12.92 * clipped if clipped <= 0.0031308 else 1.055 * clipped ** (1 / 2.4) - 0.055
    return round(255 * value)
