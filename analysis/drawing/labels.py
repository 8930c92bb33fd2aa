"""What methods, variants and origins are called and how they look: in one place.

Each has a colour of its own *and* a hatch, a marker and a line style, and the colours of one
family differ in lightness, so that a figure can be read in greyscale.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def method(name: str) -> Look:
    """A method's look; an unknown method gets its own name in grey."""
    return METHODS.get(canonical_method(name), Look(name, "#999999", "---", "X"))


def variant(name: str) -> Look:
    """A variant's look (Table 6)."""
    return VARIANTS.get(name, Look(name, "#999999", "---", "X"))


def origin(name: str) -> Look:
    """An origin's look."""
    return ORIGINS[Origin(name)]


def place(origin: str, cluster: str, links: str = "scaled") -> str:
    """What a run's times are of: virtual ranks compute on a CPU, with links made from the cluster's."""
    if origin == Origin.VIRTUAL:
        return f"CPU, links {'scaled from' if links == 'scaled' else 'of'} {cluster}"
    return f"CPU, durations of {cluster}" if origin == Origin.EMULATED else cluster


def model(name: str) -> str:
    """A model's name in print."""
    return MODELS.get(name, name)
