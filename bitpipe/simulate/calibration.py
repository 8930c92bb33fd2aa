"""Calibrations: the few numbers by which the cost model differs from a cluster's data sheet."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from bitpipe.errors import InputError

PARAMETERS = (
    "compute_efficiency",
    "head_efficiency",
    "op_overhead",
    "optimizer_bytes",
    "all_reduce_efficiency",
    "p2p_inter_efficiency",
    "all_reduce_inter_efficiency",
)
"""What :mod:`bitpipe.simulate.fit` may fit; all else comes from cluster and model."""

COVERED = 4.0
"""A rate is unknown at micro-batches of this many times more or fewer tokens than measured."""

MOST = 1.5
"""No efficiency is above this: a data sheet is not exceeded by more."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How real devices fall short of their data sheet.

    Ratios rather than rates, so that a calibration can be carried to another cluster (and is
    then reported as uncalibrated there).

    Attributes:
        name: the name of its file.
        device: name of the device whose measurements it was fitted to.
        compute_efficiency: sustained share of peak FLOP/s in the transformer layers.
        head_efficiency: the same in the LM head, one large matrix product and the loss.
        op_overhead: seconds that every forward or backward of a chunk takes besides its FLOPs.
        optimizer_bytes: memory traffic of the optimizer step per resident parameter, bytes.
        replica_bytes: what two directions add to that, per resident parameter.
        memory_efficiency: share of the device's memory bandwidth that the step reaches.
        all_reduce_efficiency: share of the cluster's intra-node all-reduce bandwidth reached.
        p2p_inter_efficiency: share of the cluster's P2P bandwidth between nodes reached; None if
            no measurement across nodes was available: then it counts as 1, and predictions that
            use more than one node are marked as uncalibrated.
        all_reduce_inter_efficiency: share of the cluster's all-reduce bandwidth between nodes reached;
            unless it was fitted, predictions in which it weighs are marked as uncalibrated.
        gradient_bytes: bytes per parameter in the gradient all-reduce of half-precision training.
        precision: in which the cells were measured.
        tokens: the fewest and the most tokens (B·s) of a micro-batch in them; None if not known.
        fitted: which of :data:`PARAMETERS` were fitted, the others being assumed.
        cells: what they were fitted to.
        sources: where each value comes from.
    """

    name: str
    device: str
    compute_efficiency: float
    head_efficiency: float
    op_overhead: float
    optimizer_bytes: float
    replica_bytes: float = 0.0
    memory_efficiency: float = 1.0
    all_reduce_efficiency: float = 1.0
    p2p_inter_efficiency: float | None = None
    all_reduce_inter_efficiency: float = 1.0
    gradient_bytes: float = 2.0
    precision: str = "fp16"
    tokens: tuple[float, float] | None = None
    fitted: tuple[str, ...] = ()
    cells: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Calibration:
        """Build a calibration from what a YAML file holds.

        Raises:
            InputError: a key is unknown or missing, a value is of the wrong kind or out of range, or
                ``fitted`` names no parameter.
        """
        known = {f.name for f in fields(cls)}
        values = dict(data)
        for key in values:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                allowed = f"allowed are {', '.join(sorted(known))}"
                hint = f"did you mean {near[0]}?" if near else ""
                raise InputError(f"calibration.{key}", values[key], allowed, hint)
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        for key in needed:
            if key not in values:
                raise InputError(f"calibration.{key}", "missing", "every calibration must give it")
        for key in ("name", "device", "cells", "precision"):
            if not isinstance(values.get(key, ""), str):
                raise InputError(f"calibration.{key}", values[key], "expected text")
        for key in (*PARAMETERS, "replica_bytes", "memory_efficiency", "gradient_bytes"):
            if key in values and not (key == "p2p_inter_efficiency" and values[key] is None):
                values[key] = _number(key, values[key])
        fitted = values.get("fitted", ())
        if isinstance(fitted, str) or not isinstance(fitted, Sequence):
            raise InputError("calibration.fitted", fitted, f"expected a list of {', '.join(PARAMETERS)}")
        for key in fitted:
            if key not in PARAMETERS:
                near = difflib.get_close_matches(str(key), PARAMETERS, n=1)
                hint = f"did you mean {near[0]}?" if near else ""
                raise InputError("calibration.fitted", key, f"allowed are {', '.join(PARAMETERS)}", hint)
        if values.get("tokens") is not None:
            values["tokens"] = _range("tokens", values["tokens"])
        sources = values.get("sources", {})
        if not isinstance(sources, Mapping):
            raise InputError("calibration.sources", sources, "expected a mapping of keys to texts")
        return cls(**values | {"fitted": tuple(fitted), "sources": dict(sources)})

    def covers(self, tokens: float) -> bool:
        """Whether micro-batches of so many tokens are near enough to those measured."""
        if self.tokens is None:
            return True
        return self.tokens[0] / COVERED <= tokens <= self.tokens[1] * COVERED


def _range(key: str, given: object) -> tuple[float, float]:
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise InputError(f"calibration.{key}", given, "two numbers, the least and the most")
    low, high = (_number(key, value) for value in given)
    if not 0 < low <= high:
        raise InputError(f"calibration.{key}", given, "two numbers from above 0, the least first")
    return low, high


def _number(key: str, given: object) -> float:
    """A value of a calibration; text is taken, because YAML reads 1e-4 as one."""
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        value = float(given)
    except (ValueError, OverflowError):
        raise InputError(f"calibration.{key}", given, "a number") from None
    if not math.isfinite(value):
        raise InputError(f"calibration.{key}", given, "must be finite")
    if value < 0 or (value == 0 and "efficiency" in key):
        raise InputError(f"calibration.{key}", value, "must be positive")
    if value > MOST and "efficiency" in key:
        raise InputError(f"calibration.{key}", value, f"a share of the data sheet's rate, at most {MOST}")
    return value
