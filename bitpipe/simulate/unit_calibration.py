"""The calibration without hardware: everything in units of a stage's forward, for schedules alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from bitpipe.errors import InputError
from bitpipe.schedule.costs import Costs
from bitpipe.simulate.calibration import Calibration

NAME = "unit"


@dataclass(frozen=True, kw_only=True)
class UnitCalibration:
    """What a stage takes, by default forward 1 and backward 2 (section 1.3); a chunk 1/v of either.

    The times may be in any one unit: results are in forwards.

    Attributes:
        name: ``unit``.
        forward: time of one stage's forward.
        input_grad, weight_grad: time of the two halves of its backward, which takes their sum.
        all_reduce: time of one stage's gradient all-reduce.
        transfer: delay of one message to another device.
        sources: why these values.
    """

    name: str = NAME
    forward: float = 1.0
    input_grad: float = 1.0
    weight_grad: float = 1.0
    all_reduce: float = 0.0
    transfer: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def costs(self) -> Costs:
        """What actions cost, in forwards; one that recomputes forwards once more."""
        return Costs(
            backward=(self.input_grad + self.weight_grad) / self.forward,
            input_grad=self.input_grad / self.forward,
            weight_grad=self.weight_grad / self.forward,
            transfer=self.transfer / self.forward,
        )


def calibration_of(data: Mapping[str, Any]) -> Calibration | UnitCalibration:
    """Build the calibration that a YAML file holds; its name tells which kind it is.

    Raises:
        InputError: a key is unknown or missing, or a value has no meaning.
    """
    if data.get("name") != NAME:
        return Calibration.from_mapping(data)
    known = [f.name for f in fields(UnitCalibration)]
    times = {name for name in known if name not in ("name", "sources")}
    for key, value in data.items():
        if key not in known:
            raise InputError(f"calibration.{key}", value, f"allowed are {', '.join(known)}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if key in times and not (number and 0 <= value < float("inf") and (value or key != "forward")):
            least = "above 0" if key == "forward" else "from 0"
            raise InputError(
                f"calibration.{key}", value, f"a time {least}, in the unit of calibration.forward"
            )
    given: dict[str, Any] = {key: float(value) for key, value in data.items() if key in times}
    return UnitCalibration(**given, sources=dict(data.get("sources", {})))
