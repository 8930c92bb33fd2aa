"""Better orders than a method's own: at given costs, within the same memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bitpipe.errors import InputError
from bitpipe.schedule.action import Action, Kind
from bitpipe.schedule.bounds import lower_bound
from bitpipe.schedule.codes import Codes, Rows
from bitpipe.schedule.costs import UNIT, Costs
from bitpipe.schedule.evaluation import evaluate, held_chunks
from bitpipe.schedule.generate import generate, method_of
from bitpipe.schedule.list_scheduling import rows_by_start
from bitpipe.schedule.own import is_own
from bitpipe.schedule.schedule import Schedule
from bitpipe.schedule.search.critical import anneal
from bitpipe.schedule.search.exact import prove
from bitpipe.schedule.search.fast import improve, lattices, starts_of
from bitpipe.schedule.search.problem import Problem
from bitpipe.schedule.spec import ScheduleSpec

EFFORT = 400_000
"""Placed actions for each of the two improvements; about a second, more on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best order that a search knows.

    Attributes:
        schedule: the order; its cap is the one it was searched under.
        makespan: at the costs asked for, in units of one stage forward.
        own_makespan: of the method's own order at the same costs.
        bound: no order of these actions within the cap ends earlier.
        proved: whether the exact solver proved the order best.
        rounded: whether the search had to round the costs (to 1/1000 of a chunk's forward); bound and
            proof then hold for the rounded ones.
    """

    schedule: Schedule
    makespan: float
    own_makespan: float
    bound: float
    proved: bool
    rounded: bool

    @property
    def gap(self) -> float:
        """How far the order may be off."""
        return max(0.0, self.makespan - self.bound)


def search(
    spec: ScheduleSpec,
    costs: Costs = UNIT,
    *,
    effort: int = EFFORT,
    exact_seconds: float | None = None,
    workers: int = 2,
) -> Found:
    """Search for a faster order of the actions that ``spec`` names.

    The placement stays. So does the memory: the cap is the one that ``spec`` asks for, else the
    most chunks that the method's own order holds. The result is never slower than the method's
    own order at the same costs, because that is one of the orders searched. It is the same
    whenever it is searched, unless ``exact_seconds`` cuts the solver short.

    Args:
        spec: what to order; a schedule of the user's own is improved likewise.
        costs: of every action and transfer.
        effort: actions that each of the two improvements may place.
        exact_seconds: then let an exact solver try to prove or beat it for so long.
        workers: threads of the solver.

    Raises:
        InputError: the spec is impossible, the costs do not fit, or the solver is not installed.
        ProgramError: a user's own schedule is wrong.
    """
    own = _uniform(generate(spec))
    cap = own.cap if spec.cap is not None or spec.early_forward else max(held_chunks(own))
    own_makespan = evaluate(own, costs).makespan
    codes = Codes.of(own)
    problem = Problem.of(codes, costs, cap)
    bound = problem.bound
    if costs == UNIT:
        formula = lower_bound(
            codes.placement, codes.micro_batches, cap=cap, split_backward=codes.split_backward
        )
        bound = max(bound, round(formula * problem.scale * codes.placement.chunks))
    rows = _search(problem, [own, *_relatives(spec, cap)], bound, effort)
    proved = False
    if exact_seconds is not None:
        hint = [round(start) for start in starts_of(problem, rows)]
        proof = prove(problem, hint, seconds=exact_seconds, workers=workers)
        if not problem.free:  # what it knows is of orders in which nothing is free
            bound, proved = max(bound, proof.bound), proof.optimal
        if proof.starts is not None:
            rows = rows_by_start(codes, proof.starts)
    better = replace(own, orders=tuple(codes.actions(row) for row in rows), cap=cap)
    makespan = evaluate(better, costs).makespan
    if makespan >= own_makespan:
        better, makespan = replace(own, cap=cap), own_makespan
    return Found(
        schedule=better,
        makespan=makespan,
        own_makespan=own_makespan,
        bound=problem.units(bound),
        proved=proved,
        rounded=not problem.exact,
    )


def _uniform(schedule: Schedule) -> Schedule:
    """Where some backwards are split and some are not, B becomes I and W: the search splits all or none.

    Raises:
        InputError: it recomputes.
    """
    kinds = {action.kind for order in schedule.orders for action in order}
    if Kind.R in kinds:
        raise InputError("method", schedule.method, "recomputes; orders are searched for F, B, I and W only")
    if not {Kind.B, Kind.I} <= kinds:
        return schedule

    def halves(action: Action) -> tuple[Action, ...]:
        split = action._replace(kind=Kind.I), action._replace(kind=Kind.W)
        return split if action.kind is Kind.B else (action,)

    orders = tuple(tuple(half for action in row for half in halves(action)) for row in schedule.orders)
    return replace(schedule, orders=orders)


def _search(problem: Problem, orders: list[Schedule], goal: int, effort: int) -> Rows:
    """Justification from every start, then exchanges from the two best of different kind."""
    codes = problem.codes
    encoded = [[codes.encode(order) for order in schedule.orders] for schedule in orders]
    starts = [starts_of(problem, rows) for rows in encoded]
    steps = problem.graph.ticks[: codes.length]
    spans = [max(s + steps[code % codes.length] for code, s in enumerate(start)) for start in starts]
    within = [
        place
        for place, schedule in enumerate(orders)
        if problem.cap is None or max(held_chunks(schedule)) <= problem.cap
    ]
    first = min(within, key=spans.__getitem__)
    tried: list[tuple[int, Rows]] = [(round(spans[first]), encoded[first])]
    if tried[0][0] > goal:
        found = improve(problem, [*starts, *lattices(problem)], goal, effort)
        if found:
            tried.append((found[0], rows_by_start(codes, found[1])))
    if min(tried)[0] > goal:
        share = effort // len(tried)
        tried += [anneal(problem, rows, goal, share) for _, rows in list(tried)]
    return min(tried, key=lambda pair: pair[0])[1]


def _relatives(spec: ScheduleSpec, cap: int | None) -> Iterator[Schedule]:
    """Other orders of the same actions: under the cap searched, and with room for early forwards."""
    if is_own(spec.method) or not method_of(spec).tunable_cap:
        return
    if spec.cap is None and not spec.early_forward:
        yield generate(replace(spec, cap=cap))
    if not spec.early_forward:
        yield generate(replace(spec, cap=None, early_forward=True))
