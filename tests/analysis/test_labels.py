"""How methods look: each one its own way, also where there is no colour."""

from __future__ import annotations

from analysis.drawing.labels import METHODS
from bitpipe.schedule import METHODS as REGISTERED


def test_every_registered_method_has_a_look_and_a_name_of_its_own() -> None:
    assert [name for name in REGISTERED if name not in METHODS] == []
    looks = list(METHODS.values())
    assert len({look.name for look in looks}) == len({look.colour for look in looks}) == len(looks)


def test_no_two_methods_share_hatch_and_marker() -> None:
    """In greyscale bars differ by hatch or lightness, points by marker or lightness."""
    looks = [(look.hatch, look.marker) for look in METHODS.values()]
    assert len(set(looks)) == len(looks)


def test_methods_of_one_hatch_or_one_marker_differ_in_lightness() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        return (0.299 * red + 0.587 * green + 0.114 * blue) / 255

    for key in ("hatch", "marker"):
        for one in METHODS.values():
            for other in METHODS.values():
                if one is not other and getattr(one, key) == getattr(other, key):
                    apart = abs(lightness(one.colour) - lightness(other.colour))
                    assert apart > 0.08, (key, one.name, other.name)
