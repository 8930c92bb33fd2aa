"""What can be known to be wrong before anything starts, in one line each."""

from __future__ import annotations

from math import inf

from bitpipe.cluster import LAYOUTS
from bitpipe.errors import InputError, choose
from bitpipe.job import SYNCS
from bitpipe.models.precision import PRECISIONS
from bitpipe.schedule import method_of
from bitpipe.simulate.programs import schedule_of
from experiments.cell import Cell
from experiments.composing.choice import Machine
from experiments.composing.settings import RunSettings
from experiments.running.data import WITHOUT_DATA
from experiments.running.targets import target_of

LINKS = ("scaled", "as_is")
ON_CPU = ("fp32", "fp64", "bf16")  # what ranks on a CPU can train in


def validate(cell: Cell) -> None:
    """Check one cell, combinations included.

    Raises:
        InputError: names the key, the value, what is allowed and the nearest valid values.
    """
    job, spec = cell.job, cell.job.schedule
    choose("method.sync", job.sync, SYNCS)
    choose("method.layout", job.layout, LAYOUTS)
    _ = cell.layout  # raises: not every order is one of every depth
    choose(
        "precision", job.precision, ON_CPU if cell.backend in ("virtual", "cpu", "emulate") else PRECISIONS
    )
    choose("backend.links", cell.links, LINKS)
    target_of(cell)
    if not 1 <= job.measured <= job.iterations:
        raise InputError("measured", job.measured, f"from 1 to iterations={job.iterations}")
    if not 0 <= job.seed < 2**63:
        raise InputError("seed", job.seed, "from 0 to 2**63 - 1")
    forward = cell.options.get("stage_forward_ms")
    if forward is not None and not (isinstance(forward, int | float) and 0 < forward < inf):
        raise InputError("backend.options.stage_forward_ms", forward, "a positive number of milliseconds")
    if cell.backend not in WITHOUT_DATA:
        job.model.check_trainable()
    _batch(cell)
    _size(cell)
    method = method_of(spec)
    if method.bidirectional and spec.depth % 2:
        raise InputError(
            "depth",
            spec.depth,
            f"{method.title} needs an even depth",
            f"nearest: {f'{spec.depth - 1} or ' if spec.depth > 2 else ''}{spec.depth + 1}",
        )
    placement = schedule_of(spec).placement
    if placement.stages > job.model.layers:
        most = job.model.layers // spec.depth
        raise InputError(
            "chunks",
            placement.chunks,
            f"depth={spec.depth} makes {placement.stages} stages, "
            f"{job.model.name} has {job.model.layers} layers",
            f"at most chunks={most}" if most else f"at most depth={job.model.layers}",
        )


def _size(cell: Cell) -> None:
    job, size = cell.job, cell.cluster.size
    if job.ranks > size:
        depth, width = job.schedule.depth, job.width
        nearest = f"at most width={size // depth}" if depth <= size else f"at most depth={size // width}"
        raise InputError(
            "width*depth",
            f"{width}*{depth}",
            f"{job.ranks} ranks, but cluster {cell.cluster.name} has {size} devices "
            f"({cell.cluster.nodes} x {cell.cluster.devices_per_node})",
            nearest,
        )


def _batch(cell: Cell) -> None:
    asked = cell.options.get("global_batch")
    if asked is None:
        return
    job = cell.job
    step = job.micro_batch_size * job.width
    below = asked // step * step
    raise InputError(
        "global_batch",
        asked,
        f"must be a multiple of B·W = {job.micro_batch_size}·{job.width} = {step}",
        f"nearest {f'{below} or ' if below else ''}{below + step}",
    )


def validate_settings(settings: RunSettings, backend: str, machine: Machine | None = None) -> None:
    """Check what is common to a sweep.

    Raises:
        InputError: GPUs are asked for where none is visible, the folder for temporary files is named too
            long for ranks here, or the data path is missing.
    """
    if backend == "cuda" and settings.launcher == "local" and not (machine or Machine.here()).gpus:
        raise InputError(
            "backend", backend, "no GPU is visible here", "backend=virtual runs real ranks on this CPU"
        )
    if backend != "simulate" and settings.launcher == "local":
        from bitpipe.runtime.processes.pool import check_temporary_folder

        check_temporary_folder()
    if not 0 <= settings.max_lag < inf:
        raise InputError(
            "max_lag", settings.max_lag, "a share of an iteration, from 0", "the default is 0.02"
        )
    path = settings.data_path
    if path is not None and not path.exists():
        near = next((parent for parent in path.parents if parent.exists()), None)
        raise InputError("data.path", path, "no such file or folder", f"{near} exists" if near else "")
