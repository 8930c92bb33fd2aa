"""``scale=fit``: the largest sibling of a model with which every job of a comparison fits.

Layers shrink first, then the hidden size, head by head; D, N, B and v stay, so that the schedules
compared are those of the paper. All jobs get the same model: throughputs of different models
cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bitpipe.cluster import Cluster
from bitpipe.errors import InputError
from bitpipe.job import Job
from bitpipe.models import ModelConfig
from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.cost import CostModel
from bitpipe.simulate.held import Held
from bitpipe.simulate.memory import BORDERLINE, GIB
from bitpipe.simulate.programs import program_of, schedule_of

# Memory does not depend on how fast a device is.
_ANY = Calibration(
    name="none", device="any", compute_efficiency=1, head_efficiency=1, op_overhead=0, optimizer_bytes=0
)


def shrink(jobs: Sequence[Job], cluster: Cluster) -> ModelConfig:
    """The largest model with which all of ``jobs``, which share one, stay below 77/80 of a device.

    Raises:
        InputError: not even one layer per stage at the smallest hidden size fits.
    """
    model = jobs[0].model
    most_stages = max(schedule_of(job.schedule).placement.stages for job in jobs)
    room = BORDERLINE * cluster.device.memory_bytes

    def fits(candidate: ModelConfig) -> bool:
        return all(peak_bytes(replace(job, model=candidate), cluster) <= room for job in jobs)

    if fits(model):
        return model
    layers = [*range(most_stages, model.layers, most_stages)]
    found = _largest(layers, lambda count: fits(_sibling(model, count, model.hidden)))
    if found is not None:
        return _sibling(model, found, model.hidden)
    least = min(most_stages, model.layers)
    step = model.hidden // model.heads
    found = _largest(range(step, model.hidden, step), lambda hidden: fits(_sibling(model, least, hidden)))
    if found is None:
        smallest = max(peak_bytes(replace(job, model=_sibling(model, least, step)), cluster) for job in jobs)
        raise InputError(
            "scale",
            "fit",
            f"{cluster.device.name} has {cluster.device.memory_bytes / GIB:.1f} GiB; {model.name} with "
            f"{least} layers of hidden={step} still needs {smallest / GIB:.1f} GiB",
            "a smaller micro_batch_size or depth range may fit",
        )
    return _sibling(model, least, found)


def peak_bytes(job: Job, cluster: Cluster) -> float:
    """Bytes on the fullest device."""
    held = Held(CostModel(job=job, cluster=cluster, calibration=_ANY))
    program = program_of(job)
    return max(held.peak(program, device).peak for device in range(job.schedule.depth))


def _sibling(model: ModelConfig, layers: int, hidden: int) -> ModelConfig:
    heads = hidden * model.heads // model.hidden
    return replace(model, name=f"{model.name}_{layers}x{hidden}", layers=layers, heads=heads, hidden=hidden)


def _largest(values: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The largest of ascending values that fits, by bisection: what fits, fits when smaller too."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if fits(values[middle]):
            low = middle + 1
        else:
            high = middle
    return values[low - 1] if low else None
