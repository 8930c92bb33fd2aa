"""What methods, variants and origins are called and how they look: in one place.

Each has a colour of its own *and* a hatch, a marker and a line style, and the colours of one
family differ in lightness, so that a figure can be read in greyscale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

import pandas as pd

from bitpipe.origin import Origin


@dataclass(frozen=True)
class Look:
    """How one series is named and drawn (matplotlib's notation)."""

    name: str
    colour: str
    hatch: str
    marker: str
    line: str | tuple[int, tuple[int, ...]] = "-"


METHODS = {
    "gpipe": Look("GPipe", "#dddddd", "", "s", ":"),
    "dapple": Look("DAPPLE", "#f3c969", "////", "o", "--"),
    "1f1b_int": Look("1F1B-Int", "#7fb8e0", "....", "^", "-."),
    "chimera": Look("Chimera", "#d07a8a", "xxxx", "D", (0, (5, 1, 1, 1, 1, 1))),
    "mixpipe": Look("MixPipe", "#3f9270", "\\\\\\\\", "v", (0, (3, 1))),
    "bitpipe": Look("BitPipe", "#1f3b7d", "", "*", "-"),
    "chimera_doubled": Look("Chimera, doubled forwards", "#8c3b4a", "--", "P", ":"),
    "gems": Look("GEMS", "#b9a7d6", "oo", "h", (0, (1, 2))),
    "breadth_first": Look("Breadth-first", "#a8d5ba", "||||", "<", (0, (4, 2))),
    "hanayo": Look("Hanayo", "#e58a4e", "o.", ">", (0, (6, 2, 1, 2))),
    "zb_h1": Look("ZB-H1", "#e6c8e0", "\\\\\\\\", "p", (0, (2, 1))),
    "zb_h2": Look("ZB-H2", "#b565a7", "++++", "X", (0, (2, 1, 1, 1))),
    "zb_v": Look("ZB-V", "#5c2a6b", "**", "P", "-"),
    "v_half": Look("V-Half", "#6fc3c9", "//", "d", (0, (3, 2))),
    "v_min": Look("V-Min", "#1f7f88", "xx", "H", (0, (1, 1))),
    "dualpipe": Look("DualPipe", "#b03a2e", "..", "8", "-"),
    "dualpipe_v": Look("DualPipeV", "#7d6608", "OO", "s", "--"),
}
VARIANTS = {
    "without_v": Look("w/o V", "#f3c969", "////", "o", "--"),
    "without_e": Look("w/o E", "#7fb8e0", "....", "^", "-."),
    "without_m": Look("w/o M", "#d07a8a", "xxxx", "D", ":"),
    "full": Look("BitPipe", "#1f3b7d", "", "*", "-"),
}
ORIGINS = {
    Origin.PAPER: Look("paper", "#e3e3e3", "", "s", ":"),
    Origin.SIMULATED: Look("simulated", "#f0b860", "////", "o", "--"),
    Origin.EMULATED: Look("emulated", "#9c86c9", "++++", "P", (0, (3, 1))),
    Origin.VIRTUAL: Look("virtual", "#4c97c4", "....", "^", "-."),
    Origin.MEASURED: Look("measured", "#1c4a3c", "", "*", "-"),
}
MODELS = {"bert-64": "BERT-64", "gpt-96": "GPT-96", "bert_64": "BERT-64", "gpt_96": "GPT-96"}

# The paper's CSV files and older logs spell some names otherwise.
_SAME = {"1f1b-int": "1f1b_int", "1f1b": "dapple"}


def canonical_method(name: str) -> str:
    """The registered name of a method, however a CSV file spells it."""
    return _SAME.get(name.lower(), name.lower())


_OWN = (("#999999", "---"), ("#c9c9c9", "oo"), ("#6f6f6f", "\\\\"), ("#e8e8e8", "**"), ("#b3a58c", "||"))
_OWN_MARKERS = ("X", "p", "h", "<", ">")


def method(name: str) -> Look:
    """A method's look; one of one's own gets its name and, by that name, a grey of its own."""
    return METHODS.get(canonical_method(name)) or _own(name)


def variant(name: str) -> Look:
    """A variant's look (Table 6)."""
    return VARIANTS.get(name) or _own(name)


def in_order(names: Iterable[object], known: Mapping[str, Look] = METHODS) -> list[str]:
    """Each name once: the known ones as they are listed, then one's own by name."""
    found = {str(name) for name in names if isinstance(name, str)}
    return [name for name in known if name in found] + sorted(found - set(known))


def _own(name: str) -> Look:
    place = crc32(name.encode()) % len(_OWN)
    return Look(name, *_OWN[place], _OWN_MARKERS[place])


def origin(name: str) -> Look:
    """An origin's look."""
    return ORIGINS[Origin(name)]


def place(origin: str, cluster: str, links: str = "scaled") -> str:
    """What a run's times are of: virtual ranks compute on a CPU, with links made from the cluster's."""
    if origin == Origin.VIRTUAL:
        return f"CPU, links {'scaled from' if links == 'scaled' else 'of'} {cluster}"
    return f"CPU, durations of {cluster}" if origin == Origin.EMULATED else cluster


PAPERS_CLUSTER = "a800"


def whose(rows: pd.DataFrame) -> str:
    """The origin of rows that share it, and where they are of: what ran, or what was modelled.

    Only the origin for the paper's cluster, and where times are of a CPU that stands in for it.
    """
    name = str(rows["origin"].iloc[0])
    places = sorted(map(str, rows["cluster"].dropna().unique()))
    told = name in (Origin.SIMULATED, Origin.MEASURED) and places != [PAPERS_CLUSTER] and places
    return f"{name} on {', '.join(places)}" if told else name


def model(name: str) -> str:
    """A model's name in print."""
    return MODELS.get(name, name)
