"""Calibrations: the few numbers by which the cost model differs from a cluster's data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from bitpipe.errors import InputError

PARAMETERS = (
    "compute_efficiency",
    "op_overhead",
    "optimizer_bytes",
    "all_reduce_efficiency",
    "p2p_inter_efficiency",
    "all_reduce_inter_efficiency",
)
"""What :mod:`bitpipe.simulate.fit` may fit; all else comes from cluster and model."""


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
        all_reduce_efficiency: share of the cluster's intra-node all-reduce bandwidth reached.
        p2p_inter_efficiency: share of the cluster's P2P bandwidth between nodes reached; None if
            no measurement across nodes was available: then it counts as 1, and predictions that
            use more than one node are marked as uncalibrated.
        all_reduce_inter_efficiency: share of the cluster's all-reduce bandwidth between nodes reached.
        gradient_bytes: bytes per parameter in the gradient all-reduce of half-precision training.
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
    all_reduce_efficiency: float = 1.0
    p2p_inter_efficiency: float | None = None
    all_reduce_inter_efficiency: float = 1.0
    gradient_bytes: float = 2.0
    fitted: tuple[str, ...] = ()
    cells: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Calibration:
        """Build a calibration from what a YAML file holds.

        Raises:
            InputError: a key is unknown, missing, negative, or ``fitted`` names no parameter.
        """
        known = {f.name for f in fields(cls)}
        values = dict(data)
        for key in values:
            if key not in known:
                raise InputError(f"calibration.{key}", values[key], f"allowed are {', '.join(sorted(known))}")
        needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        for key in needed:
            if key not in values:
                raise InputError(f"calibration.{key}", "missing", "every calibration must give it")
        for key in (*PARAMETERS, "head_efficiency", "gradient_bytes"):
            if values.get(key) is None:
                continue
            try:
                values[key] = float(values[key])
            except (TypeError, ValueError):
                raise InputError(f"calibration.{key}", values[key], "a number") from None
            if not values[key] >= 0 or (values[key] == 0 and "efficiency" in key):
                raise InputError(f"calibration.{key}", values[key], "must be positive")
        values["fitted"] = tuple(values.get("fitted", ()))
        for key in values["fitted"]:
            if key not in PARAMETERS:
                raise InputError("calibration.fitted", key, f"allowed are {', '.join(PARAMETERS)}")
        values["sources"] = dict(values.get("sources", {}))
        return cls(**values)
