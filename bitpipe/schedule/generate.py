"""From a spec to a schedule: validate everything, then let the method order the actions."""

from __future__ import annotations

from bitpipe.errors import InputError, choose
from bitpipe.schedule.bounds import early_forward_cap
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.collector import paused
from bitpipe.schedule.methods import METHODS, Method, Plan
from bitpipe.schedule.methods.base import ALWAYS, NEVER, PARTLY
from bitpipe.schedule.own import is_own, own_method, own_schedule
from bitpipe.schedule.placement import PLACEMENTS, Placement
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.spec import ScheduleSpec, check_size


def method_of(spec: ScheduleSpec) -> Method:
    """The method of a spec; for a user's own schedule, what its rows tell.

    Raises:
        InputError: there is none of that name; the message has the nearest.
    """
    if is_own(spec.method):
        return own_method(spec)
    return METHODS[choose("method", spec.method, METHODS)]


@paused()
def generate(spec: ScheduleSpec) -> Schedule:
    """Build the schedule that ``spec`` names, in the method's own order.

    An odd D is scheduled, too (section 1.1), where two directions meet on the middle device; what
    trains needs an even one, see ``Method.needs``.

    Raises:
        InputError: the spec is impossible; one line with the nearest valid values.
        ProgramError: a user's own schedule is wrong.
    """
    if is_own(spec.method):
        return own_schedule(spec)
    method = method_of(spec)
    placement = placement_of(spec)
    if spec.split_backward and method.splits == NEVER:
        able = ", ".join(name for name, other in METHODS.items() if other.splits != NEVER)
        raise InputError("split_backward", True, f"{method.title} does not split it", f"these do: {able}")
    count, empty = _micro_batches(spec, method, placement)
    if (near := method.nearest(spec.depth, count)) != count:
        raise InputError("micro_batches", count, f"{method.title} needs {method.needs}", f"nearest: {near}")
    split = spec.split_backward or method.splits in (PARTLY, ALWAYS)
    codes = Codes.even(placement, count, split_backward=split)
    plan = Plan(
        codes=codes,
        cap=_cap(spec, method, placement, count),
        search=spec.cap is not None or spec.early_forward,
        split=spec.split_backward,
    )
    rows = method.order(plan)
    return Schedule(
        method=method.name,
        placement=placement,
        pipes=codes.pipes,
        orders=codes.orders(rows),
        cap=plan.cap,
        empty=empty,
    )


def placement_of(spec: ScheduleSpec) -> Placement:
    """The placement of a spec.

    Raises:
        InputError: depth, chunks or placement do not suit the method.
    """
    if is_own(spec.method):
        return own_schedule(spec).placement
    method = method_of(spec)
    chunks = method.chunks if spec.chunks is None else spec.chunks
    if chunks != method.chunks and not method.any_chunks:
        allowed = f"{method.title} has {method.chunks} chunk per device and direction"
        raise InputError("chunks", chunks, allowed, f"nearest: {method.chunks}")
    if chunks % method.chunk_step:
        allowed = f"{method.title} takes a multiple of {method.chunk_step}"
        raise InputError("chunks", chunks, allowed, f"nearest: {chunks + -chunks % method.chunk_step}")
    if method.even_depth and spec.depth % 2:
        near = f"nearest: {spec.depth + 1}"
        raise InputError("depth", spec.depth, f"{method.title} needs an even one", near)
    name = method.placements[0]
    if spec.placement is not None:
        name = choose("placement", spec.placement, PLACEMENTS)
    if name not in method.placements:
        raise InputError("placement", name, f"{method.title} uses {' or '.join(method.placements)}")
    if spec.depth < 2:
        raise InputError("depth", spec.depth, "a pipeline needs at least 2 devices", "nearest: 2")
    check_size(spec, spec.depth * chunks)
    placement = PLACEMENTS[name](spec.depth, chunks)
    return placement.mirrored() if method.bidirectional else placement


def _micro_batches(spec: ScheduleSpec, method: Method, placement: Placement) -> tuple[int, frozenset[int]]:
    """N with padding, and which of them are empty: the last ones of each direction."""
    real, depth = spec.micro_batches, placement.depth
    if real < 1:
        raise InputError("micro_batches", real, "at least one micro-batch is needed", "nearest: 1")
    if real % depth == 0:
        return real, frozenset()
    if spec.pad:
        count = -(-real // depth) * depth
        if not method.bidirectional:
            return count, frozenset(range(real, count))
        down, half = (real + 1) // 2, (count + 1) // 2
        return count, frozenset(range(down, half)) | frozenset(range(half + real // 2, count))
    if method.multiple_of_depth:
        near = [str(n) for n in (real // depth * depth, (real // depth + 1) * depth) if n]
        raise InputError(
            "micro_batches",
            real,
            f"{method.title} needs a multiple of the depth {depth}",
            f"nearest: {' or '.join(near)}; or pad=true",
        )
    return real, frozenset()


def _cap(spec: ScheduleSpec, method: Method, placement: Placement, count: int) -> int | None:
    if spec.cap is None and not spec.early_forward:
        return method.default_cap(placement, count)
    key, value = ("cap", spec.cap) if spec.cap is not None else ("early_forward", True)
    if not method.tunable_cap:
        able = ", ".join(name for name, other in METHODS.items() if other.tunable_cap)
        raise InputError(key, value, f"{method.title} has a fixed order", f"methods with a cap: {able}")
    if spec.cap is not None and spec.early_forward:
        raise InputError("cap", spec.cap, "early_forward sets the cap itself", "give one of the two")
    if spec.cap is None:
        return early_forward_cap(placement.depth, placement.chunks)
    if spec.cap < placement.chunks:
        raise InputError(
            "cap",
            spec.cap,
            f"one micro-batch alone holds {placement.chunks} chunks on a device",
            f"nearest: {placement.chunks}",
        )
    return spec.cap
