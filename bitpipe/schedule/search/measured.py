"""Costs from where they are known: a timeline of a run, or a file."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from bitpipe.errors import InputError, choose
from bitpipe.schedule.action import Kind
from bitpipe.schedule.costs import NAMES, Costs
from bitpipe.schedule.timeline import Timeline

_KEYS = (*NAMES.values(), "transfer")


def measured_costs(timeline: Timeline, depth: int) -> Costs:
    """What every stage costs, as a timeline of ``depth`` devices (and replicas of them) shows it.

    A stage costs the median of its actions over micro-batches, pipes and replicas, a transfer the
    median of all messages, from issue to arrival. The unit is the mean forward of 1/D of the model.

    Raises:
        InputError: a stage has no action of a kind that others have, or D does not divide the stages.
    """
    seen: dict[Kind, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    messages = []
    for event in timeline.events:
        kind = event.action.kind
        if kind in NAMES:
            seen[kind][event.action.stage].append(event.end - event.start)
        elif kind in (Kind.SEND_F, Kind.SEND_B):
            messages.append(event.end - event.start)
    stages = 1 + max((stage for by_stage in seen.values() for stage in by_stage), default=-1)
    if not stages or stages % depth:
        raise InputError("depth", depth, f"the timeline has {stages} stages, which must be a multiple of D")
    values: dict[str, tuple[float, ...]] = {}
    for kind, by_stage in seen.items():
        missing = [stage for stage in range(stages) if stage not in by_stage]
        if missing:
            raise InputError("timeline", kind.value, f"has no {kind.value} of stage {missing[0]}")
        values[NAMES[kind]] = tuple(median(by_stage[stage]) for stage in range(stages))
    if "forward" not in values:
        raise InputError("timeline", "no forward", "there is no F in it")
    unit = sum(values["forward"]) / depth
    if unit <= 0:
        raise InputError("timeline", unit, "its forwards take no time")
    scaled = {name: tuple(value / unit for value in row) for name, row in values.items()}
    return Costs(**scaled, transfer=median(messages) / unit if messages else 0.0)


def read_costs(path: Path, depth: int) -> Costs:
    """Costs from JSON: a run's ``timeline.json``, or an object with the fields of :class:`Costs`.

    Raises:
        InputError: the file cannot be read, or holds neither.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("costs", path, f"cannot read the file: {error.strerror}") from None
    except ValueError as error:
        raise InputError("costs", path, f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError("costs", path, "expected an object: a timeline, or forward, backward, … transfer")
    if "events" in document:
        return measured_costs(Timeline.of(document), depth)
    values = {}
    for key, value in document.items():
        choose("costs", key, _KEYS)
        values[key] = _numbers(key, value)
    return Costs(**values)


def _numbers(key: str, value: Any) -> Any:
    """A cost, checked: a number from 0, or (transfer apart) one for each stage."""
    many = value if isinstance(value, list) and key != "transfer" else [value]
    for one in many:
        number = isinstance(one, (int, float)) and not isinstance(one, bool)
        if not (number and 0 <= one < float("inf")):
            raise InputError(f"costs.{key}", one, "a time from 0, in units of a forward of 1/D of the model")
    return tuple(map(float, value)) if isinstance(value, list) else float(value)
