"""A user's own schedule: from a file, or from a Python function found by name.

File (``method=file:PATH``): one row per device, first to last, compute actions in the text form of
:mod:`bitpipe.schedule.action` separated by spaces or commas; ``#`` starts a comment::

    F0@0d F1@0d B0@0d B1@0d    # device 0
    F0@1d B0@1d F1@1d B1@1d

A file that ends in ``.csv`` is torch.distributed.pipelining's (:mod:`bitpipe.schedule.exchange`).
The backward of a micro-batch at a stage is either B, or I and W; one schedule may hold both.

Function (``method=module:function``): called with the :class:`ScheduleSpec`, returns rows of
actions (or their texts), or a whole :class:`Schedule`.

Which device holds which stage, how many pipes there are and which micro-batches pass which of them
is all read off the rows. Micro-batches are numbered over all pipes together.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import inspect
import os
import re
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.schedule.action import COMPUTE, Action, parse_action, pipe_mark, pipe_word
from bitpipe.schedule.checks import check_schedule
from bitpipe.schedule.errors import ProgramError, at
from bitpipe.schedule.evaluation import flow_times
from bitpipe.schedule.exchange import from_torch_csv
from bitpipe.schedule.flow import Flow
from bitpipe.schedule.methods.base import ONE_DIRECTION, TWO_DIRECTIONS, Method, Plan
from bitpipe.schedule.placement import Placement, placement_from_routes
from bitpipe.schedule.schedule import Schedule, pipe_rule
from bitpipe.schedule.spec import ScheduleSpec, check_size

FILE = "file:"
COPIES = "BITPIPE_SCHEDULES"
"""Variable that names a folder with copies of schedule files, as a submitted job has them."""


def is_own(method: str) -> bool:
    """Whether a method's name points to a user's own schedule."""
    return ":" in method


def file_of(method: str) -> Path:
    """Where the text of ``file:PATH`` is read from: a copy of it, where this process was given one."""
    copies = os.environ.get(COPIES)
    copy = Path(copies) / copy_name(method) if copies else None
    return copy if copy and copy.is_file() else Path(method.removeprefix(FILE))


def copy_name(method: str) -> str:
    """Name of the copy of ``file:PATH``: its suffix says which form the text has."""
    return hashlib.sha256(method.encode(errors="surrogateescape")).hexdigest()[:16] + Path(method).suffix


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
        flow_times(Flow(schedule))
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
        family=TWO_DIRECTIONS if both else ONE_DIRECTION,
        placements=(placement.name,),
        chunks=placement.chunks,
        any_chunks=False,
        bidirectional=both,
        needs="–",
        layout="replica_aware" if both else "megatron",
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
    for device, row in enumerate(orders):
        for position, action in enumerate(row):
            if action.kind not in COMPUTE:
                raise at(orders, device, position, f"{action} is not F, B, I, W or R; lowering adds the rest")
    if not any(orders):
        raise InputError("method", spec.method, "the schedule has no actions")
    placement = _read_placement(orders)
    return Schedule(
        method=spec.method, placement=placement, pipes=_read_pipes(orders), orders=orders, cap=spec.cap
    )


def _action(given: object, spec: ScheduleSpec) -> Action:
    if isinstance(given, Action):
        return given
    if isinstance(given, str):
        return parse_action(given)
    raise InputError("method", spec.method, f"expected actions or their texts, found {_shown(given)}")


def _read_placement(orders: tuple[tuple[Action, ...], ...]) -> Placement:
    where: dict[tuple[int, int], int] = {}
    for device, row in enumerate(orders):
        for position, action in enumerate(row):
            key = action.pipe, action.stage
            if where.setdefault(key, device) != device:
                raise at(orders, device, position, f"{action}: the stage also lies on device {where[key]}")
    stages, pipes = (max(key[part] for key in where) + 1 for part in (1, 0))
    if len(where) < pipes * stages:
        pipe, stage = next((p, s) for p in range(pipes) for s in range(stages) if (p, s) not in where)
        raise ProgramError(
            f"no device holds stage {stage}{pipe_mark(pipe)}, but the last stage is {stages - 1}"
        )
    routes = tuple(tuple(where[pipe, stage] for stage in range(stages)) for pipe in range(pipes))
    return placement_from_routes(routes, len(orders))


def _read_pipes(orders: tuple[tuple[Action, ...], ...]) -> tuple[int, ...]:
    pipes: dict[int, int] = {}
    for device, row in enumerate(orders):
        for position, action in enumerate(row):
            pipe = pipes.setdefault(action.micro_batch, action.pipe)
            if pipe != action.pipe:
                reason = (
                    f"{action}: micro-batch {action.micro_batch} already is in the {pipe_word(pipe)} pipe; "
                    "they are numbered over all pipes together"
                )
                raise at(orders, device, position, reason)
    count = max(pipes) + 1
    if len(pipes) < count:
        missing = next(m for m in range(count) if m not in pipes)
        raise ProgramError(f"micro-batch {missing} is missing, but the last one is {count - 1}")
    return tuple(pipes[m] for m in range(count))


def _from_file(spec: ScheduleSpec) -> list[list[Action]]:
    path = file_of(spec.method)
    try:
        if path.exists() and not path.is_file():  # a FIFO or /dev/zero would be read for ever
            raise InputError("method", spec.method, "expected a regular file")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        near = next((str(parent) for parent in path.absolute().parents if _exists(parent)), "")
        reason = f"cannot read the file: {error.strerror}"
        raise InputError("method", spec.method, reason, f"{near} exists") from error
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError("method", spec.method, "expected a text file in UTF-8") from error
    except ValueError as error:  # a path with a null byte
        raise InputError("method", repr(spec.method), f"cannot read the file: {error}") from error
    if path.suffix == ".csv":
        return from_torch_csv(text, spec.method)
    lines = (line.partition("#")[0].strip(" \t,") for line in text.splitlines())
    return [_row(spec.method, number, line) for number, line in enumerate(lines, 1) if line]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its name is too long, or its folder may not be searched
        return False


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
    except KeyboardInterrupt:
        raise
    except BaseException as error:
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
        return _rows(function(spec), spec)
    except (InputError, ProgramError, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever the user's function raises, GeneratorExit included
        code = getattr(function, "__code__", None)
        files = {getattr(module, "__file__", None), getattr(code, "co_filename", None)}
        reason = f"the function raised {_said(error)}"
        raise InputError("method", spec.method, reason, _line_in(files, error)) from error


def _rows(result: object, spec: ScheduleSpec) -> Schedule | list[list[Action | str]]:
    """What a user's function returned, generators run to their end."""
    if isinstance(result, Schedule):
        return result
    if inspect.iscoroutine(result):
        result.close()  # otherwise Python warns that it was never awaited
    if not isinstance(result, Iterable):
        found = _kind_of(result)
        raise InputError("method", spec.method, f"expected a schedule or rows, found {found}")
    rows = []
    for row in result:
        if not isinstance(row, Iterable):
            raise InputError("method", spec.method, f"expected rows of actions, found {_shown(row)}")
        rows.append(list(row))
    return rows


def _kind_of(value: object) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _shown(value: object) -> str:
    """A value on one line, or its type where that cannot be had."""
    try:
        text = repr(value)
    except Exception:
        return _kind_of(value)
    return text if len(text) <= 80 and text.isprintable() else _kind_of(value)


def _line_in(files: set[str | None], error: BaseException) -> str:
    """The last line run in one of these files, empty if there is none.

    The user's own line: libraries that patch sys.exit (wandb does) would name theirs.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{f.filename}:{f.lineno}" for f in reversed(frames) if f.filename in files), "")


def _said(error: BaseException) -> str:
    """The exception's type and the first line of its message."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # the user's own __str__ may fail as well
        lines = []
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
            hint = f"all pipes together: {pipe_rule(schedule.pipes)}" if both else ""
            raise InputError(key, want, f"the schedule {spec.method} has {key}={found}", hint)
