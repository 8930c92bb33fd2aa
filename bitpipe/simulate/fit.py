"""Calibration: fit a few named parameters to measured cells, and say how much that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError, choose
from bitpipe.simulate.calibration import PARAMETERS, Calibration
from bitpipe.simulate.cells import MeasuredCell
from bitpipe.simulate.predict import predict

MOST_PARAMETERS = 5
RANGES = {
    "compute_efficiency": (0.05, 1.0),
    "head_efficiency": (0.05, 1.0),
    "op_overhead": (0.0, 0.02),
    "optimizer_bytes": (0.0, 400.0),
    "all_reduce_efficiency": (0.05, 1.5),
    "p2p_inter_efficiency": (0.005, 1.0),
    "all_reduce_inter_efficiency": (0.02, 1.5),
}
_SCALES = {
    "compute_efficiency": 0.1,
    "head_efficiency": 0.1,
    "op_overhead": 1e-3,
    "optimizer_bytes": 30.0,
    "all_reduce_efficiency": 0.3,
    "p2p_inter_efficiency": 0.05,
    "all_reduce_inter_efficiency": 0.3,
}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A calibration with the cells that it was fitted to.

    Attributes:
        calibration: the outcome.
        cluster: on which the cells were measured.
        cells: those fitted to.
        parameters: those fitted now; others came fitted with the base.
    """

    calibration: Calibration
    cluster: Cluster
    cells: tuple[MeasuredCell, ...]
    parameters: tuple[str, ...]

    @property
    def degrees_of_freedom(self) -> int:
        """Distinct measurements less fitted parameters.

        Cells of one row with equal throughput (a component that changes nothing) count once.
        """
        distinct = {(cell.row, cell.samples_per_s) for cell in self.cells}
        return len(distinct) - len(self.parameters)

    def errors(self, cells: Sequence[MeasuredCell]) -> tuple[float, ...]:
        """(predicted − measured) / measured throughput."""
        return tuple(error(cell, self.cluster, self.calibration) for cell in cells)


def error(cell: MeasuredCell, cluster: Cluster, calibration: Calibration) -> float:
    """Relative error of the predicted throughput."""
    return predict(cell.job, cluster, calibration).samples_per_s / cell.samples_per_s - 1


def fit(
    cells: Sequence[MeasuredCell],
    cluster: Cluster,
    base: Calibration,
    parameters: Sequence[str],
    *,
    name: str = "fitted",
) -> Fit:
    """Fit ``parameters``, the others as in ``base``, by least squares on relative errors.

    Raises:
        InputError: an unknown parameter, more than five, more than there are cells, or one that no cell
            depends on.
    """
    for parameter in parameters:
        choose("parameters", parameter, PARAMETERS)
    if not 1 <= len(parameters) <= min(MOST_PARAMETERS, len(cells)):
        raise InputError(
            "parameters", ",".join(parameters), f"from one to five, and no more than the {len(cells)} cells"
        )

    def at(values: Sequence[float]) -> Calibration:
        return replace(base, **dict(zip(parameters, map(float, values), strict=True)))  # type: ignore[arg-type]

    def residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
        calibration = at(values.tolist())
        return np.array([error(cell, cluster, calibration) for cell in cells])

    start = []
    for parameter in parameters:
        low, high = RANGES[parameter]
        value = getattr(base, parameter)
        start.append(min(max(0.1 if value is None else value, low * 1.01 + 1e-9), high * 0.99))
    for place, parameter in enumerate(parameters):
        moved = [*start]
        moved[place] = sum(RANGES[parameter]) / 3
        if np.allclose(residuals(np.array(moved)), residuals(np.array(start)), rtol=0, atol=1e-12):
            raise InputError(
                "parameters", parameter, "none of the cells depends on it, so they cannot tell it"
            )
    found = least_squares(
        residuals,
        start,
        bounds=([RANGES[p][0] for p in parameters], [RANGES[p][1] for p in parameters]),
        x_scale=[_SCALES[p] for p in parameters],
        diff_step=[1e-3] * len(parameters),
    )
    fitted = replace(
        at([float(f"{value:.4g}") for value in np.asarray(found.x)]),
        name=name,
        device=cluster.device.name,
        **_measured(cells, base),
        fitted=tuple(dict.fromkeys((*base.fitted, *parameters))),
    )
    return Fit(calibration=fitted, cluster=cluster, cells=tuple(cells), parameters=tuple(parameters))


def _measured(cells: Sequence[MeasuredCell], base: Calibration) -> dict[str, Any]:
    """In which precision, and at how many tokens per micro-batch, the cells of all fits were measured."""
    precisions = {cell.job.precision for cell in cells}
    if len(precisions) > 1:
        raise InputError("cells", ", ".join(sorted(precisions)), "a fit takes cells of one precision")
    tokens = [cell.job.micro_batch_size * cell.job.model.sequence for cell in cells]
    before = base.tokens if base.fitted and base.tokens else ()
    return {
        "precision": precisions.pop(),
        "tokens": (float(min(*tokens, *before)), float(max(*tokens, *before))),
    }


def leave_a_row_out(made: Fit, base: Calibration, parameters: Sequence[str]) -> dict[str, float]:
    """Errors of cells whose whole row was kept from the fit; rows that leave too few are absent."""
    errors: dict[str, float] = {}
    for row in dict.fromkeys(cell.row for cell in made.cells):
        rest = [cell for cell in made.cells if cell.row != row]
        if len(rest) < len(parameters):
            continue
        again = fit(rest, made.cluster, base, parameters)
        for cell in made.cells:
            if cell.row == row:
                errors[str(cell)] = error(cell, made.cluster, again.calibration)
    return errors


def null_errors(cells: Sequence[MeasuredCell], reference: Sequence[MeasuredCell]) -> tuple[float, ...]:
    """Errors of the model that knows nothing: an ablation's throughput is its row's in ``reference``."""
    known = {cell.row: cell.samples_per_s for cell in reference}
    return tuple(known[cell.row] / cell.samples_per_s - 1 for cell in cells if cell.row in known)
