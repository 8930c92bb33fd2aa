"""The calibration without hardware: everything in the paper's unit of time, for schedules alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from bitpipe.errors import InputError
from bitpipe.simulate.calibration import Calibration

NAME = "unit"


@dataclass(frozen=True, kw_only=True)
class UnitCalibration:
    """A stage's forward takes 1, its backward 2 (section 1.3); a chunk 1/v of either.

    Attributes:
        name: ``unit``.
        all_reduce: time of one stage's gradient all-reduce.
        transfer: delay of one message to another device.
        sources: why these values.
    """

    name: str = NAME
    all_reduce: float = 0.0
    transfer: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)


def calibration_of(data: Mapping[str, Any]) -> Calibration | UnitCalibration:
    """Build the calibration that a YAML file holds; its name tells which kind it is.

    Raises:
        InputError: a key is unknown or missing, or a value has no meaning.
    """
    if data.get("name") != NAME:
        return Calibration.from_mapping(data)
    known = [f.name for f in fields(UnitCalibration)]
    for key, value in data.items():
        if key not in known:
            raise InputError(f"calibration.{key}", value, f"allowed are {', '.join(known)}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if key in ("all_reduce", "transfer") and not (number and 0 <= value < float("inf")):
            raise InputError(f"calibration.{key}", value, "a time from 0, in units of a stage's forward")
    return UnitCalibration(
        all_reduce=float(data.get("all_reduce", 0.0)),
        transfer=float(data.get("transfer", 0.0)),
        sources=dict(data.get("sources", {})),
    )
