"""A result set against the expected one, point by point, within stated tolerances.

Simulated numbers must agree but for the last digits of floating point. Virtual times are CPU times
of a real machine: only the ratios between the cells of one comparison are held against the expected
ones, each with the interval that its own iterations span; losses and memory do not depend on the
machine's speed and are held against the expected values. Measured numbers belong to the machine that
measured them: their settings and status are checked, their values are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

from analysis.comparing.verify_points import Point, points
from analysis.load.records import throughput_interval
from analysis.load.results import Results
from bitpipe.errors import InputError, choose

SIMULATED = 1e-9
"""Relative: what two machines' floating point may differ by."""
VIRTUAL_RATIO = 0.10
"""Relative, beyond both intervals: of samples/s over the geometric mean of the comparison."""
VIRTUAL_BUBBLE = 0.08
"""Absolute: of the share of idle time."""
VIRTUAL_LOSS = 1e-3
"""Relative: of every step's loss, where the text is the same; kernels add up in another order."""
VIRTUAL_MEMORY = 0.01
"""Relative: of every device's peak."""
TOLERANCES = {
    "simulated": f"every number within {SIMULATED:g} relative",
    "virtual": f"samples/s over the mean of its comparison within {VIRTUAL_RATIO:.0%} beyond both intervals, "
    f"bubble ratio within {VIRTUAL_BUBBLE:g}, losses within {VIRTUAL_LOSS:.1%} where the text is the same, "
    f"peak memory within {VIRTUAL_MEMORY:.0%}",
    "emulated": "settings and status",
    "measured": "settings and status",
}
"""Per origin, for people."""
NOT_ASKED = "no sweep asked for it"
"""Detail of a point that is missing because nothing was run."""

Record = Mapping[str, Any]


class Verdict(StrEnum):
    """What became of an expected point."""

    AGREES = "agrees"
    DIFFERS = "differs"
    MISSING = "missing"
    CHANGED = "assumption changed"


@dataclass(frozen=True, kw_only=True)
class Item:
    """One expected point: its verdict, and in one line what is wrong."""

    point: Point
    verdict: Verdict
    detail: str = ""


def verify(results: Path, reference: Path, only: str = "") -> list[Item]:
    """One item per point of the reference, in its order; with ``only``, of that experiment's.

    Raises:
        InputError: a folder is missing, or the reference holds no finished point, or none of ``only``.
    """
    for key, folder in (("results", results), ("reference", reference)):
        if not folder.is_dir():
            raise InputError(key, folder, "no such results folder")
    expected = [point for point in points(Results(reference)) if point.record is not None]
    if not expected:
        raise InputError("reference", reference, "holds no record")
    if only:
        choose("verify", only, {point.experiment for point in expected})
        expected = [point for point in expected if point.experiment == only]
    found = points(Results(results))
    pairs = [(point, _partner(point, found)) for point in expected]
    ratios = _ratios(pairs)
    return [_item(point, partner, ratios.get(place)) for place, (point, partner) in enumerate(pairs)]


def _partner(point: Point, found: Sequence[Point]) -> Point | None:
    """The newest point that says the same of every setting that ``point`` names."""
    wanted = point.settings.items()
    same = (
        other
        for other in reversed(found)
        if (other.experiment, other.origin) == (point.experiment, point.origin)
        and wanted <= other.settings.items()
    )
    # Of several, one with nothing added; a setting added on the command line is a changed assumption.
    return min(same, key=lambda other: len(other.settings), default=None)


def _item(point: Point, partner: Point | None, ratio: Ratio | None) -> Item:
    if partner is None:
        return Item(point=point, verdict=Verdict.MISSING, detail=NOT_ASKED)
    if partner.record is None:
        return Item(point=point, verdict=Verdict.MISSING, detail="it has no record that can be read")
    assert point.record is not None
    want, have = point.record, partner.record
    changed = [
        difference
        for difference in differences(want["identity"], have["identity"])
        if not _may_change(difference, point.origin)
    ]
    if changed:
        return Item(point=point, verdict=Verdict.CHANGED, detail=_some(changed, 5))
    wrong = list(_wrong(point.origin, want, have, ratio))
    return Item(point=point, verdict=Verdict.DIFFERS if wrong else Verdict.AGREES, detail=_some(wrong))


def _may_change(difference: str, origin: str) -> bool:
    """The built-in corpus is a Python release's own text; other text changes no order and no ratio."""
    return origin != "simulated" and difference.startswith("data:")


def _wrong(origin: str, want: Record, have: Record, ratio: Ratio | None) -> Iterator[str]:
    if want["status"] != have["status"]:
        reason = (have["cause"] or {}).get("message", "")
        yield f"status: {want['status']} expected, {have['status']} found{f' ({reason})' if reason else ''}"
        return
    if origin == "simulated":
        for part in ("metrics", "devices"):
            yield from differences(want[part], have[part], part, SIMULATED)
    if origin == "virtual" and want["status"] == "ok":
        yield from _wrong_virtual(want, have, ratio)


def _wrong_virtual(want: Record, have: Record, ratio: Ratio | None) -> Iterator[str]:
    if ratio is None:
        yield "samples/s: nothing to compare with"
    elif ratio.apart > VIRTUAL_RATIO:
        yield f"samples/s over the comparison's mean: {ratio}"
    bubbles = [one["metrics"].get("bubble_ratio") for one in (want, have)]
    if None not in bubbles and abs(bubbles[0] - bubbles[1]) > VIRTUAL_BUBBLE:
        yield f"bubble_ratio: {bubbles[0]:.4f} expected, {bubbles[1]:.4f} found"
    if want["identity"]["data"] == have["identity"]["data"]:
        losses = [one["metrics"].get("losses") for one in (want, have)]
        yield from differences(losses[0], losses[1], "losses", VIRTUAL_LOSS)
    peaks = [one["devices"].get("peak_memory_bytes") for one in (want, have)]
    yield from differences(peaks[0], peaks[1], "peak_memory_bytes", VIRTUAL_MEMORY)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A cell's samples/s over the geometric mean of its comparison: (value, lowest, highest) twice."""

    want: tuple[float, float, float]
    have: tuple[float, float, float]

    @property
    def apart(self) -> float:
        """By how much, relative, the intervals miss each other; below 0 where they overlap."""
        return max(self.want[1] / self.have[2], self.have[1] / self.want[2]) - 1

    def __str__(self) -> str:
        (want, *_), (have, low, high) = self.want, self.have
        return f"{want:.4f} expected, {have:.4f} found (its iterations span {low:.4f} to {high:.4f})"


def _ratios(pairs: Sequence[tuple[Point, Point | None]]) -> dict[int, Ratio]:
    """Per place in ``pairs`` of a virtual cell its ratio.

    A comparison holds the virtual cells of one experiment and shape that are there on both sides.
    """
    groups: dict[object, dict[int, Ratio]] = {}
    for place, (point, partner) in enumerate(pairs):
        if point.origin != "virtual" or partner is None or partner.record is None:
            continue
        assert point.record is not None
        want, have = _speed(point.record), _speed(partner.record)
        if want and have:
            groups.setdefault(_comparison(point.record), {})[place] = Ratio(want=want, have=have)
    found: dict[int, Ratio] = {}
    for group in groups.values():
        if len(group) > 1:
            a = _mean(one.want[0] for one in group.values())
            b = _mean(one.have[0] for one in group.values())
            for place, one in group.items():
                found[place] = Ratio(want=_over(one.want, a), have=_over(one.have, b))
    return found


def _speed(record: Record) -> tuple[float, float, float] | None:
    """Samples/s with the lowest and highest of the steps that count."""
    value = record["metrics"].get("samples_per_s")
    if not value:
        return None
    low, high = throughput_interval(record["metrics"], record["identity"]["job"]["measured"])
    return value, low or value, high or value


def _mean(values: Iterable[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))


def _over(speed: tuple[float, float, float], mean: float) -> tuple[float, float, float]:
    return speed[0] / mean, speed[1] / mean, speed[2] / mean


def _comparison(record: Record) -> object:
    job = record["identity"]["job"]
    schedule = job["schedule"]
    shape = (schedule["depth"], schedule["micro_batches"], job["width"], job["micro_batch_size"])
    return (record["experiment"], job["model"]["name"], *shape)


def differences(want: Any, have: Any, path: str = "", relative: float = 0.0) -> Iterator[str]:
    """Where two JSON values differ, one line each; numbers may by ``relative``."""
    if isinstance(want, Mapping) and isinstance(have, Mapping):
        for key in [*want, *(key for key in have if key not in want)]:
            inner = f"{path}.{key}" if path else key
            yield from differences(want.get(key), have.get(key), inner, relative)
    elif isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        for place, (one, other) in enumerate(zip(want, have, strict=True)):
            yield from differences(one, other, f"{path}[{place}]", relative)
    elif not _same(want, have, relative):
        yield f"{path}: {want!r} expected, {have!r} found"


def _same(want: Any, have: Any, relative: float) -> bool:
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (want, have))
    return math.isclose(want, have, rel_tol=relative, abs_tol=0.0) if numbers else bool(want == have)


def _some(lines: Sequence[str], most: int = 1) -> str:
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return "; ".join([*lines[:most], *more])
