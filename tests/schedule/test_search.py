"""A searched order is never slower, never larger, always valid, and often better."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitpipe.errors import InputError
from bitpipe.schedule import (
    UNIT,
    Costs,
    ScheduleSpec,
    check,
    evaluate,
    generate,
    held_chunks,
    lower,
    sequential,
    vee,
)
from bitpipe.schedule.__main__ import main
from bitpipe.schedule.codes import Codes
from bitpipe.schedule.search import Problem, measured_costs, prove, read_costs, search
from bitpipe.schedule.search.critical import anneal
from bitpipe.schedule.search.methods import bitpipe_searched


def spec(depth: int, count: int, method: str = "bitpipe", **more: object) -> ScheduleSpec:
    return ScheduleSpec(method=method, depth=depth, micro_batches=count, **more)  # type: ignore[arg-type]


def v_problem(depth: int, count: int, cap: int | None = None, split: bool = False) -> Problem:
    placement = vee(depth, 2).mirrored()
    return Problem.of(Codes.even(placement, count, split_backward=split), UNIT, cap)


@pytest.mark.parametrize(
    ("depth", "count", "split", "makespan"),
    [(4, 4, False, 14), (4, 8, False, 25.5), (6, 6, False, 22), (8, 8, False, 30), (4, 4, True, 12.5)],
)
@pytest.mark.needs("search")
def test_the_solver_proves_known_makespans_best(depth: int, count: int, split: bool, makespan: float) -> None:
    """Without a hint, and without our own lower bound."""
    problem = v_problem(depth, count, split=split)
    proof = prove(problem, seconds=120)
    assert proof.optimal
    assert proof.makespan is not None
    assert problem.units(proof.makespan) == problem.units(proof.bound) == makespan


@pytest.mark.slow  # 10 to 60 s
@pytest.mark.needs("search")
def test_the_solver_proves_the_cost_of_the_cap() -> None:
    problem = v_problem(4, 8, cap=8)
    proof = prove(problem, seconds=240)
    assert proof.optimal
    assert problem.units(proof.bound) == 26


@pytest.mark.needs("search")
def test_a_proof_at_transfer_costs_is_an_order_that_the_simulator_confirms() -> None:
    found = search(spec(4, 4), Costs(transfer=0.1), effort=20_000, exact_seconds=120)
    assert found.proved
    assert found.makespan == pytest.approx(found.bound)
    assert evaluate(found.schedule, Costs(transfer=0.1)).makespan == pytest.approx(found.makespan)


@pytest.mark.needs("search")
def test_an_impossible_cap_is_named() -> None:
    with pytest.raises(InputError, match="cap=1: no order"):
        prove(v_problem(2, 2, cap=1), seconds=30)


def test_a_missing_solver_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(InputError) as error:
        search(spec(4, 4), exact_seconds=1)
    assert str(error.value).endswith('pip install -c constraints.txt -e ".[search]"')
    assert "\n" not in str(error.value)


@settings(max_examples=25, deadline=None)
@given(
    method=st.sampled_from(["dapple", "1f1b_int", "chimera", "mixpipe", "bitpipe"]),
    half=st.integers(1, 2),
    units=st.integers(1, 3),
    split=st.booleans(),
    transfer=st.sampled_from([0.0, 0.1, 0.37]),
    seed=st.integers(0, 10_000),
)
def test_never_slower_never_larger_always_valid(
    method: str, half: int, units: int, split: bool, transfer: float, seed: int
) -> None:
    import random

    depth = 2 * half
    own = generate(spec(depth, depth * units, method, split_backward=split))
    source = random.Random(seed)
    stages = own.placement.stages
    back = tuple(source.uniform(0.5, 3) for _ in range(stages))
    costs = Costs(
        forward=tuple(source.uniform(0.5, 1.5) for _ in range(stages)),
        backward=back,
        input_grad=back,
        transfer=transfer,
    )
    found = search(spec(depth, depth * units, method, split_backward=split), costs, effort=5_000)
    assert found.makespan <= evaluate(own, costs).makespan == found.own_makespan
    assert found.makespan >= found.bound * 0.999
    assert max(held_chunks(found.schedule)) <= max(held_chunks(own))
    assert evaluate(found.schedule, costs).makespan == found.makespan
    check(lower(found.schedule, sync="eager", width=2))


@pytest.mark.parametrize("method", ["dapple", "bitpipe"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("free", ["forward", "backward", "input_grad", "weight_grad"])
@pytest.mark.parametrize("stages", ["all", "first"])
def test_no_order_ends_before_the_bound_where_actions_are_free(
    method: str, split: bool, free: str, stages: str
) -> None:
    own = generate(spec(4, 8, method, split_backward=split))
    count = own.placement.stages
    costs = Costs(**{free: (0.0,) * count if stages == "all" else (0.0, *(1.0,) * (count - 1))})  # type: ignore[arg-type]
    found = search(spec(4, 8, method, split_backward=split), costs, effort=3_000)
    assert found.bound <= found.makespan <= found.own_makespan
    check(lower(found.schedule, sync="eager"))


def test_transfers_are_searched_around() -> None:
    """At 0.1 per hop the order made for free transfers is not the best within D·Ma."""
    costs, capped = Costs(transfer=0.1), spec(8, 32, cap=16)
    found = search(capped, costs).schedule
    assert evaluate(found, costs).makespan < evaluate(generate(capped), costs).makespan - 1e-6
    assert evaluate(found, costs).makespan < 112.7
    assert max(held_chunks(found)) <= 16


def test_small_caps_leave_much_to_find() -> None:
    found = search(spec(8, 16, cap=12), effort=100_000)
    assert found.makespan < 0.9 * found.own_makespan
    assert max(held_chunks(found.schedule)) <= 12


def test_a_search_is_the_same_every_time() -> None:
    twice = [search(spec(4, 8), Costs(transfer=0.1), effort=20_000).schedule for _ in range(2)]
    assert twice[0] == twice[1]


def test_exchanges_keep_the_cap_and_do_not_worsen() -> None:
    schedule = generate(spec(4, 8))
    codes = Codes.of(schedule)
    rows = [codes.encode(order) for order in schedule.orders]
    problem = Problem.of(codes, Costs(transfer=0.1), 8)
    ticks, better = anneal(problem, rows, 0, 100_000)
    assert problem.units(ticks) < evaluate(schedule, Costs(transfer=0.1)).makespan
    assert [sorted(row) for row in better] == [sorted(row) for row in rows]


def test_the_bound_counts_work_heads_tails_and_chains() -> None:
    assert [v_problem(4, n).units(v_problem(4, n).bound) for n in (4, 8)] == [13.5, 25.5]
    placement = sequential(2)
    one = Problem.of(Codes.even(placement, 3), Costs(transfer=0.5), None)
    assert one.units(one.bound) == 3 * 3 + 3 + 2 * 0.5  # work, F before it, B after it, two hops


def test_a_run_tells_its_costs(tmp_path: Path) -> None:
    schedule = generate(spec(4, 4))
    forward = (0.5,) * 7 + (0.8,)
    known = Costs(forward=forward, backward=tuple(2 * f for f in forward))
    unit = sum(forward) / 4
    found = measured_costs(evaluate(schedule, known), 4)
    assert found.forward == pytest.approx([f / unit for f in forward])
    assert found.backward == pytest.approx([2 * f / unit for f in forward])
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(evaluate(schedule, known).document()))
    assert read_costs(path, 4) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"foward": 1}', "did you mean forward"),
        ('{"forward": "x"}', "a time from 0"),
        ('{"transfer": [1]}', "a time from 0"),
        ('{"events": 1}', "not a timeline"),
    ],
)
def test_bad_costs_are_one_line(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    assert main(["search", "bitpipe", "-D", "4", "-N", "4", "--costs", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_writes_what_a_run_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "searched.txt"
    asked = ["search", "bitpipe", "-D", "4", "-N", "8", "--transfer", "0.1", "--effort", "20000"]
    assert main([*asked, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["searched_makespan"] < told["own_makespan"]
    again = generate(spec(4, 8, f"file:{out}"))
    assert evaluate(again, Costs(transfer=0.1)).makespan == told["searched_makespan"]
    assert main([*asked, "--out", str(out)]) == 0
    assert "the search gains" in capsys.readouterr().out


def test_the_named_method_is_bitpipe_in_bitpipes_memory() -> None:
    name = "bitpipe.schedule.search.methods:bitpipe_searched"
    schedule = generate(spec(8, 32, name))
    assert schedule.method == name
    assert evaluate(schedule).makespan == 102 < evaluate(generate(spec(8, 32))).makespan
    assert max(held_chunks(schedule)) == 16
    assert bitpipe_searched(spec(8, 8, name)).orders == generate(spec(8, 8)).orders
