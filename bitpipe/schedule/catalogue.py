"""The methods side by side: what each needs, and what it costs at one size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bitpipe.errors import InputError
from bitpipe.schedule.describe import describe
from bitpipe.schedule.generate import generate, placement_of
from bitpipe.schedule.methods import METHODS, Method
from bitpipe.schedule.methods.base import FAMILIES
from bitpipe.schedule.spec import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method at one size.

    Attributes:
        method: what it is.
        copies: of the weights.
        peak: most activations of a device, in Ma; None where the size does not suit the method.
        bubble_ratio: idle share of all devices' time behind a barrier.
        span_bubble_ratio: idle share of the longest device's own span, the zero-bubble papers' measure.
        refused: why it cannot have that size.
    """

    method: Method
    copies: int
    peak: float | None = None
    bubble_ratio: float | None = None
    span_bubble_ratio: float | None = None
    refused: str = ""


def catalogue(depth: int, micro_batches: int) -> Iterator[Entry]:
    """Every method, family by family, with its own placement and number of chunks.

    Raises:
        InputError: no method can have that size.
    """
    for family in FAMILIES:
        for method in METHODS.values():
            if method.family == family:
                yield _entry(method, depth, micro_batches)


def _entry(method: Method, depth: int, micro_batches: int) -> Entry:
    spec = ScheduleSpec(method=method.name, depth=depth, micro_batches=micro_batches)
    copies = len(placement_of(spec).routes)
    try:
        figures = describe(generate(spec))
    except InputError as error:
        return Entry(method=method, copies=copies, refused=str(error))
    return Entry(
        method=method,
        copies=copies,
        peak=max(figures.peak_activation_per_device),
        bubble_ratio=figures.bubble_ratio,
        span_bubble_ratio=1 - 3 * micro_batches / figures.span,
    )
