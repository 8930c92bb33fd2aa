"""From timings to a calibration that :mod:`bitpipe.simulate` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from scipy.optimize import nnls

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from bitpipe.gpu_check.chunks import ChunkTime
from bitpipe.gpu_check.row import RowTimes
from bitpipe.simulate import Calibration, conf


def cluster_of(device: str) -> Cluster:
    """The cluster file whose device this is, by the model in its name (A100, H200, …).

    Raises:
        InputError: there is none.
    """
    clusters = [conf.cluster(name) for name in conf.names("cluster")]
    words = device.replace("-", " ").split()
    for cluster in clusters:
        model = cluster.device.name.replace("-", " ").split()
        if len(model) > 1 and model[1] in words:
            return cluster
    known = ", ".join(cluster.device.name for cluster in clusters)
    raise InputError("device", device, f"no cluster file describes it (known: {known})", "give --cluster")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A calibration and how well it explains what it was fitted to.

    Attributes:
        calibration: the result.
        errors: relative error of every forward and backward, in the order of the timings.
    """

    calibration: Calibration
    errors: tuple[float, ...]


def fit(times: Sequence[ChunkTime], rows: Sequence[RowTimes], cluster: Cluster, name: str) -> Fit:
    """Least relative squares over forwards and backwards: rate of layers, rate of the head, overhead.

    The optimizer's bytes per parameter follow from the rows' steps at the cluster's memory
    bandwidth. Links are not measured here: one GPU has none.
    """
    samples = [(t.layer_flops, t.head_flops, t.forward) for t in times]
    samples += [(2 * t.layer_flops, 2 * t.head_flops, t.backward) for t in times]
    peak = cluster.device.peak_flops
    table = np.array([[layer / peak, head / peak, 1.0] for layer, head, _ in samples])
    seconds = np.array([s for _, _, s in samples])
    found, _ = nnls(table / seconds[:, None], np.ones(len(seconds)))
    errors = table @ found / seconds - 1
    step = sum(row.step for row in rows) / sum(row.parameters for row in rows)
    sizes = ", ".join(dict.fromkeys(f"{t.model} B={t.micro_batch_size} {t.precision}" for t in times))
    calibration = Calibration(
        name=name,
        device=cluster.device.name,
        compute_efficiency=float(1 / found[0]),
        head_efficiency=float(1 / found[1]),
        op_overhead=float(found[2]),
        optimizer_bytes=step * cluster.device.memory_bandwidth,
        gradient_bytes=4.0,
        precision=times[0].precision,
        fitted=("compute_efficiency", "op_overhead", "optimizer_bytes"),
        cells=f"chunks of {sizes} on one device",
        sources={
            "compute_efficiency": "fitted to chunks of 1, 2 and 4 layers",
            "head_efficiency": "fitted to a chunk of one layer with the LM head",
            "op_overhead": "fitted to chunks of 1, 2 and 4 layers",
            "optimizer_bytes": "measured: clearing, unscaling, Adam and the narrow copy",
            "all_reduce_efficiency": "not measured on one device, none lost assumed",
            "p2p_inter_efficiency": "not measured on one device",
            "gradient_bytes": "the runtime sums gradients in fp32",
        },
    )
    return Fit(calibration=calibration, errors=tuple(errors.tolist()))


def write(calibration: Calibration, path: Path) -> None:
    """Write a calibration file; ``calibration=PATH`` and ``--calibration PATH`` read it."""
    document = {
        key: list(value) if isinstance(value, tuple) else value for key, value in vars(calibration).items()
    }
    text = yaml.safe_dump(document, sort_keys=False, width=110)
    path.write_text(f"# Written by: python -m bitpipe.gpu_check\n{text}")
