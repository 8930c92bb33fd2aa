"""A user's own schedule: from a file, or from a Python function found by name.

File (``method=file:PATH``): one row per device, first to last, compute actions in the text form of
:mod:`bitpipe.schedule.action` separated by spaces or commas; ``#`` starts a comment::

    F0@0d F1@0d B0@0d B1@0d    # device 0
    F0@1d B0@1d F1@1d B1@1d

A file that ends in ``.csv`` is torch.distributed.pipelining's (:mod:`bitpipe.schedule.exchange`).
Where some backwards are split and some are not, B stands for I and W one after the other.

Function (``method=module:function``): called with the :class:`ScheduleSpec`, returns rows of
actions (or their texts), or a whole :class:`Schedule`.

Where stages lie is read off the rows. Micro-batches are numbered as everywhere: of N the first
⌈N/2⌉ go down, the others up; a schedule without ``u`` actions has one pipe.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.schedule.action import DOWN, PIPE_LETTERS, UP, Action, Kind, parse_action
from bitpipe.schedule.checks import check_schedule
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.errors import ProgramError, at
from bitpipe.schedule.evaluation import UNIT, start_times
from bitpipe.schedule.exchange import from_torch_csv
from bitpipe.schedule.methods.base import Method, Plan
from bitpipe.schedule.placement import PLACEMENTS, Placement
from bitpipe.schedule.schedule import Schedule, pipe_rule
from bitpipe.schedule.spec import ScheduleSpec, check_size

FILE = "file:"
_COMPUTE = {Kind.F, Kind.B, Kind.I, Kind.W}


def is_own(method: str) -> bool:
    """Whether a method's name points to a user's own schedule."""
    return ":" in method


def own_schedule(spec: ScheduleSpec) -> Schedule:
    """Load and check the schedule that ``spec.method`` points to.

    Raises:
        InputError: there is nothing to load, or it does not have the spec's D, N or v.
        ProgramError: it is incomplete, inconsistent, above its cap, or it deadlocks.
    """
    for key in ("early_forward", "pad"):
        if getattr(spec, key):
            raise InputError(key, True, "a schedule of your own has a fixed order")
    check_size(spec, spec.depth * (spec.chunks or 1))
    made = _from_file(spec) if spec.method.startswith(FILE) else _from_function(spec)
    try:
        if isinstance(made, Schedule):
            schedule = replace(made, method=spec.method, cap=made.cap if spec.cap is None else spec.cap)
        else:
            schedule = schedule_from_rows(made, spec)
        _matches(spec, schedule)
        check_schedule(schedule)
        codes = Codes.of(schedule)
        start_times(codes, [codes.encode(order) for order in schedule.orders], UNIT.steps(codes))
    except ProgramError as error:
        raise ProgramError(f"{spec.method}: {error.reason}", error.grid) from error
    return schedule


def own_method(spec: ScheduleSpec) -> Method:
    """What is known of a user's own schedule in the terms of a method.

    Raises:
        InputError, ProgramError: as :func:`own_schedule`.
    """
    schedule = own_schedule(spec)
    placement = schedule.placement
    both = placement.bidirectional

    def order(plan: Plan) -> list[list[int]]:
        return [plan.codes.encode(row) for row in schedule.orders]

    return Method(
        name=spec.method,
        title=spec.method.partition(":")[2],
        description="your own schedule",
        placements=(placement.name,),
        chunks=placement.chunks,
        any_chunks=False,
        bidirectional=both,
        partition=placement.name + (", two directions" if both else ""),
        scheduling="your own",
        device_mapping="replica-aware across nodes" if both else "sequential",
        sync="eager",
        needs="–",
        layout="replica_aware" if both else "sequential",
        sync_mode="eager",
        order=order,
        default_cap=lambda placement, micro_batches: schedule.cap,
    )


def schedule_from_rows(rows: Iterable[Iterable[Action | str]], spec: ScheduleSpec) -> Schedule:
    """A schedule from rows of compute actions, its placement read off them.

    Raises:
        InputError: a text is not a compute action, or the stages are not v per device.
        ProgramError: two devices hold one stage.
    """
    orders = tuple(tuple(_action(action, spec) for action in row) for row in rows)
    if any(action.kind in (Kind.I, Kind.W) for row in orders for action in row):
        orders = tuple(tuple(half for action in row for half in _halves(action)) for row in orders)
    for device, row in enumerate(orders):
        for position, action in enumerate(row):
            if action.kind not in _COMPUTE:
                raise at(orders, device, position, f"{action} is not F, B, I or W; lowering adds the rest")
    actions = [action for row in orders for action in row]
    if not actions:
        raise InputError("method", spec.method, "the schedule has no actions")
    return Schedule(
        method=spec.method,
        placement=_read_placement(orders, spec),
        micro_batches=max(action.micro_batch for action in actions) + 1,
        orders=orders,
        cap=spec.cap,
        split_backward=any(action.kind in (Kind.I, Kind.W) for action in actions),
    )


def _action(given: object, spec: ScheduleSpec) -> Action:
    if isinstance(given, Action):
        return given
    if isinstance(given, str):
        return parse_action(given)
    raise InputError("method", spec.method, f"expected actions or their texts, found {given!r}")


def _halves(action: Action) -> tuple[Action, ...]:
    if action.kind is not Kind.B:
        return (action,)
    return action._replace(kind=Kind.I), action._replace(kind=Kind.W)


def _read_placement(orders: tuple[tuple[Action, ...], ...], spec: ScheduleSpec) -> Placement:
    depth = len(orders)
    where: dict[tuple[int, int], int] = {}
    for device, row in enumerate(orders):
        for position, action in enumerate(row):
            key = action.pipe, action.stage
            if where.setdefault(key, device) != device:
                raise at(orders, device, position, f"{action}: the stage also lies on device {where[key]}")
    both = any(pipe == UP for pipe, _ in where)
    stages = max(stage for _, stage in where) + 1
    for pipe in (DOWN, UP) if both else (DOWN,):
        missing = next((stage for stage in range(stages) if (pipe, stage) not in where), None)
        if missing is not None:
            raise ProgramError(
                f"no device holds stage {missing}{PIPE_LETTERS[pipe]}, but the last stage is {stages - 1}"
            )
    if stages % depth:
        near = f"nearest: {stages // depth * depth or depth} or {(stages // depth + 1) * depth}"
        raise InputError("stages", stages, f"expected a multiple of the {depth} devices (rows)", near)
    tables = tuple(
        tuple(where[pipe, stage] for stage in range(stages)) for pipe in ((DOWN, UP) if both else (DOWN,))
    )
    chunks = stages // depth
    for name in PLACEMENTS:
        if name == "sequential" and chunks != 1:
            continue
        placement = Placement(name=name, depth=depth, chunks=chunks, bidirectional=both)
        if tables == placement.table:
            return placement
    return Placement(name="own", depth=depth, chunks=chunks, bidirectional=both, own=tables)


def _from_file(spec: ScheduleSpec) -> list[list[Action]]:
    path = Path(spec.method.removeprefix(FILE))
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        near = next((str(parent) for parent in path.absolute().parents if parent.exists()), "")
        reason = f"cannot read the file: {error.strerror}"
        raise InputError("method", spec.method, reason, f"{near} exists") from error
    except UnicodeDecodeError as error:
        raise InputError("method", spec.method, "expected a text file in UTF-8") from error
    if path.suffix == ".csv":
        return from_torch_csv(text, spec.method)
    lines = (line.partition("#")[0].strip(" \t,") for line in text.splitlines())
    return [_row(spec.method, number, line) for number, line in enumerate(lines, 1) if line]


def _row(method: str, number: int, line: str) -> list[Action]:
    try:
        return [parse_action(text) for text in re.split(r"[\s,]+", line)]
    except InputError as error:
        key = f"{method} line {number}: {error.key}"
        raise InputError(key, error.value, error.allowed, error.hint) from error


def _from_function(spec: ScheduleSpec) -> Schedule | list[list[Action | str]]:
    module_name, _, name = spec.method.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        raise InputError(
            "method",
            spec.method,
            f"cannot import {module_name!r}: {_said(error)}",
            "is it on PYTHONPATH?" if absent else "",
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        near = difflib.get_close_matches(name, functions, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(functions)) or 'none'}"
        raise InputError("method", spec.method, f"{module_name} has no function {name!r}", hint)
    try:
        result = function(spec)
        return result if isinstance(result, Schedule) else [list(row) for row in result]
    except (InputError, ProgramError):
        raise
    except (Exception, SystemExit) as error:
        # The user's own line: libraries that patch sys.exit (wandb does) would name theirs.
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((f for f in reversed(frames) if f.filename == module.__file__), frames[-1])
        reason = f"the function raised {_said(error)}"
        raise InputError("method", spec.method, reason, f"{frame.filename}:{frame.lineno}") from error


def _said(error: BaseException) -> str:
    """The exception's type and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _matches(spec: ScheduleSpec, schedule: Schedule) -> None:
    """D and N must be as asked for, and v, placement and split if they were."""
    asked: list[tuple[str, object, object]] = [
        ("depth", spec.depth, schedule.depth),
        ("micro_batches", spec.micro_batches, schedule.micro_batches - len(schedule.empty)),
        ("chunks", spec.chunks, schedule.chunks),
        ("placement", spec.placement, schedule.placement.name),
        ("split_backward", spec.split_backward or None, schedule.split_backward),
    ]
    for key, want, found in asked:
        if want is not None and want != found:
            both = key == "micro_batches" and schedule.placement.bidirectional
            hint = f"both pipes together: {pipe_rule(spec.micro_batches)}" if both else ""
            raise InputError(key, want, f"the schedule {spec.method} has {key}={found}", hint)
