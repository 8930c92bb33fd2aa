"""The exact search: OR-tools' CP-SAT proves an order best, or says how far it may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitpipe.errors import InputError
from bitpipe.schedule.search.problem import Problem

INSTALL = 'pip install -c constraints.txt -e ".[search]"'


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the solver knows.

    Attributes:
        starts: of every code, in ticks; None if it found no order.
        makespan: of that order, in ticks.
        bound: no order ends before this many ticks.
        optimal: whether the two are equal and so proved.
        seconds: that the solver took.
    """

    starts: list[int] | None
    makespan: int | None
    bound: int
    optimal: bool
    seconds: float


def prove(
    problem: Problem, hint: Sequence[int] | None = None, *, seconds: float = 60.0, workers: int = 2
) -> Proof:
    """Search exhaustively for at most ``seconds``.

    Micro-batches of one pipe are alike, so they may be taken to pass every stage first in, first
    out: sorting the starts of one stage's forwards (backwards) keeps every order feasible and
    changes neither makespan nor what a device holds.

    Args:
        problem: what to order.
        hint: starts of an order within the cap, to begin with.
        seconds: time limit.
        workers: threads of the solver.

    Raises:
        InputError: OR-tools is not installed, or no order keeps the cap.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise InputError("search", "exact", f"OR-tools is missing; install it with: {INSTALL}") from None
    model, starts = _model(problem, hint, cp_model.CpModel())
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = workers
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        raise InputError("cap", problem.cap, "no order of these actions keeps it")
    known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Proof(
        starts=[solver.value(start) for start in starts] if known else None,
        makespan=round(solver.objective_value) if known else None,
        bound=round(solver.best_objective_bound),
        optimal=status == cp_model.OPTIMAL,
        seconds=solver.wall_time,
    )


def _model(problem: Problem, hint: Sequence[int] | None, model: Any) -> tuple[Any, list[Any]]:
    graph, codes = problem.graph, problem.codes
    ticks = graph.ticks
    latest = max((s + t for s, t in zip(hint, ticks, strict=True)), default=0) if hint else sum(ticks)
    starts = []
    for code, duration in enumerate(ticks):
        pipe, step = codes.pipes[code // codes.length], code % codes.length
        head, tail = problem.heads[pipe][step], problem.tails[pipe][step]
        starts.append(model.new_int_var(head, latest - tail - duration, f"s{code}"))
    for code, befores in enumerate(graph.before):
        for before in befores:
            model.add(starts[code] >= starts[before] + ticks[before] + problem.delay(before, code))
    rows: list[list[int]] = [[] for _ in range(graph.depth)]
    for code, device in enumerate(graph.devices):
        rows[device].append(code)
    for row in rows:
        model.add_no_overlap(model.new_fixed_size_interval_var(starts[c], ticks[c], "") for c in row)
        if problem.cap is not None:
            held = [_held(problem, code, starts, latest, model) for code in row if graph.opens[code]]
            if len(held) > problem.cap:
                model.add_cumulative(held, [1] * len(held), problem.cap)
    makespan = model.new_int_var(0, latest, "makespan")
    if problem.cap is not None:
        for row in rows:
            _turn(problem, row, starts, makespan, model)
    for code, after in enumerate(graph.after):
        if not after:
            model.add(makespan >= starts[code] + ticks[code])
    model.minimize(makespan)
    if hint:
        for start, value in zip(starts, hint, strict=True):
            model.add_hint(start, value)
    return model, starts


def _turn(problem: Problem, row: list[int], starts: list[Any], makespan: Any, model: Any) -> None:
    """What follows from the cap, said so that the solver sees it: before a device's first backward
    there are at most ``cap`` forwards, and all else that it has to do comes after.
    """
    codes, ticks = problem.codes, problem.graph.ticks
    forwards = [code for code in row if problem.graph.opens[code]]
    others = [code for code in row if not problem.graph.opens[code]]
    if problem.cap is None or len(forwards) <= problem.cap:
        return
    tail = min(problem.tails[codes.pipes[code // codes.length]][code % codes.length] for code in row)
    turn = model.new_int_var(0, sum(ticks), "")
    model.add_min_equality(turn, [starts[code] for code in others])
    early = [model.new_bool_var("") for _ in forwards]
    model.add(sum(early) <= problem.cap)
    for code, before in zip(forwards, early, strict=True):
        model.add(starts[code] >= turn).only_enforce_if(before.negated())
    after = sum(ticks[code] * (1 - before) for code, before in zip(forwards, early, strict=True))
    model.add(makespan >= turn + after + sum(ticks[code] for code in others) + tail)


def _held(problem: Problem, code: int, starts: list[Any], latest: int, model: Any) -> Any:
    """The interval from a forward's start to the end of the action that frees its activations."""
    closing = problem.codes.finish(*divmod(code, problem.codes.length))
    size = model.new_int_var(0, latest, "")
    end = starts[closing] + problem.graph.ticks[closing]
    return model.new_interval_var(starts[code], size, end, "")
