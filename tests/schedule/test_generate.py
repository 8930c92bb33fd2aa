"""What may be asked of which method, and what the answer says when it may not."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from bitpipe.errors import InputError
from bitpipe.schedule import (
    METHODS,
    Costs,
    ScheduleSpec,
    check,
    describe,
    evaluate,
    generate,
    lower,
    placement_of,
)


def spec(method: str, depth: int = 4, micro_batches: int = 8, **more: object) -> ScheduleSpec:
    return ScheduleSpec(method=method, depth=depth, micro_batches=micro_batches, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (spec("bitpip"), r"method=bitpip: .*did you mean bitpipe\?"),
        (spec("1f1b_int", 4, 7), r"micro_batches=7: .*nearest: 4 or 8; or pad=true"),
        (spec("1f1b_int", 4, 3), r"nearest: 4; or pad=true"),
        (spec("bitpipe", cap=1), r"cap=1: one micro-batch alone holds 2 chunks.*nearest: 2"),
        (spec("bitpipe", chunks=4, cap=3), r"cap=3.*nearest: 4"),
        (spec("bitpipe", cap=9, early_forward=True), r"cap=9.*one of the two"),
        (spec("chimera", cap=4), r"cap=4: Chimera has a fixed order \(.*mixpipe, bitpipe"),
        (spec("dapple", early_forward=True), r"early_forward=True: DAPPLE has a fixed order"),
        (spec("gpipe", chunks=2), r"chunks=2: GPipe has 1 chunk .*nearest: 1"),
        (spec("bitpipe", chunks=0), r"chunks=0"),
        (spec("bitpipe", depth=1), r"depth=1: .*nearest: 2"),
        (spec("bitpipe", micro_batches=0), r"micro_batches=0: .*nearest: 1"),
        (spec("bitpipe", placement="cycle"), r"placement=cycle: .*did you mean cyclic\?"),
        (spec("bitpipe", placement="sequential"), r"BitPipe uses v or cyclic"),
        (spec("chimera_doubled", split_backward=True), r"split_backward=True"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_nearest_choice(asked: ScheduleSpec, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        generate(asked)
    assert "\n" not in str(caught.value)


def makespan(asked: ScheduleSpec, costs: Costs | None = None) -> float:
    return evaluate(generate(asked), *([costs] if costs else [])).makespan


def test_four_devices_eight_micro_batches_as_in_figure_6() -> None:
    assert makespan(spec("bitpipe")) == 26.5  # concatenated; the paper's formula gives 26
    assert makespan(spec("bitpipe", cap=8)) == 26
    assert makespan(spec("bitpipe", early_forward=True)) == 25.5


def test_concatenation_follows_its_formula() -> None:
    for depth in (4, 8, 16):
        for k in (1, 2, 3, 4):
            n = k * depth
            assert makespan(spec("bitpipe", depth, n)) == 3 * n + depth - 2 + (k - 1) * (depth - 3) / 2


def test_the_uneven_split_beats_padding() -> None:
    assert makespan(spec("bitpipe", 4, 5)) == 17.5
    assert makespan(spec("bitpipe", 4, 5, early_forward=True)) == 16.5
    assert makespan(spec("bitpipe", 4, 5, pad=True)) == 26.5
    assert makespan(spec("bitpipe", 4, 5, pad=True, cap=8)) == 26


def test_padding_empties_the_last_micro_batches_of_each_direction() -> None:
    assert generate(spec("bitpipe", 4, 5, pad=True)).empty == {3, 6, 7}
    assert generate(spec("dapple", 4, 5, pad=True)).empty == {5, 6, 7}
    assert generate(spec("bitpipe", 4, 8, pad=True)).empty == frozenset()


def test_the_v_placement_saves_transfers() -> None:
    for depth, n in ((4, 4), (8, 16)):
        v = describe(generate(spec("bitpipe", depth, n))).transfers
        cyclic = describe(generate(spec("bitpipe", depth, n, placement="cyclic"))).transfers
        assert v == 2 * n * 2 * (depth - 1)
        assert cyclic == 2 * n * (2 * depth - 1)


def test_the_middle_devices_idle_as_the_paper_says() -> None:
    """Section 1.3.2: (D−2)/2 before the turn, (D−2)/4 backwards after it; the sum holds everywhere."""
    for depth in (4, 8, 16):
        got = describe(generate(spec("bitpipe", depth, depth)))
        middle = depth // 2
        assert got.forward_idle_per_device[middle] == (depth - 2) / 2
        assert got.backward_idle_per_device[middle] == 2 * (depth - 2) / 4
        for before, after in zip(got.forward_idle_per_device, got.backward_idle_per_device, strict=True):
            assert before + after == depth - 2
        assert got.forward_idle < (depth - 2) / 2  # the mean over devices is below it


def test_more_chunks_flush_earlier() -> None:
    spans = [makespan(spec("bitpipe", 8, 8, chunks=v)) for v in (1, 2, 3, 4, 8)]
    assert spans == pytest.approx([3 * 8 + 2 * 6 / v for v in (1, 2, 3, 4, 8)])


def test_tight_schedules_pay_for_communication() -> None:
    """At 0.1 per hop the concatenated units lose their lead over 1F1B-Int, early forward keeps it."""
    hop = Costs(transfer=0.1)
    assert makespan(spec("1f1b_int", 8, 32), hop) == pytest.approx(109.5)
    assert makespan(spec("bitpipe", 8, 32), hop) > 120
    assert 102 < makespan(spec("bitpipe", 8, 32, cap=16), hop) <= 112.7
    assert makespan(spec("bitpipe", 8, 32, early_forward=True), hop) == pytest.approx(108.6)
    assert makespan(spec("bitpipe", 8, 8), hop) == pytest.approx(33.3)
    assert makespan(spec("1f1b_int", 8, 8), hop) == pytest.approx(37.5)


def test_unequal_stages() -> None:
    schedule = generate(spec("gpipe", 2, 1))
    timeline = evaluate(schedule, Costs(forward=(1.0, 2.0), backward=(3.0, 5.0)))
    assert timeline.makespan == 1 + 2 + 5 + 3
    with pytest.raises(InputError, match=r"costs.forward=3: .*2 stages"):
        evaluate(schedule, Costs(forward=(1.0, 2.0, 3.0)))


@pytest.mark.parametrize("depth", [3, 5, 7])
@pytest.mark.parametrize("method", ["bitpipe", "mixpipe", "chimera"])
def test_odd_depths_are_scheduled_by_the_same_mechanism(method: str, depth: int) -> None:
    for n in (depth, depth + 1, 2 * depth):
        schedule = generate(spec(method, depth, n))
        check(lower(schedule, sync="none"))
        if method == "bitpipe":
            assert describe(schedule).bubble_ratio < (depth - 1) / (n + depth - 1)  # DAPPLE's


def test_table_2_has_its_facts() -> None:
    assert METHODS["1f1b_int"].needs == "N multiple of D"
    for name, method in METHODS.items():
        assert name == method.name
        assert placement_of(spec(name, 4, 4)).bidirectional == method.bidirectional
        assert method.needs.startswith("D") == method.bidirectional


def test_torch_is_never_imported() -> None:
    code = (
        "import sys, bitpipe.schedule as s; "
        "spec = s.ScheduleSpec(method='bitpipe', depth=4, micro_batches=4); "
        "s.check(s.lower(s.generate(spec), sync='eager')); "
        "sys.exit(any(name.split('.')[0] in ('torch', 'numpy') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("asked", "generating", "altogether"),
    [
        (spec("bitpipe", 8, 32), 0.05, 0.1),
        (spec("bitpipe", 32, 256, early_forward=True), 1.0, 3.0),
        pytest.param(spec("bitpipe", 256, 256), 1.0, 11.0, marks=pytest.mark.slow),
    ],
    ids=["concatenated D=8 N=32", "early forward D=32 N=256", "unit D=256 N=256"],
)
def test_speed_on_one_core(asked: ScheduleSpec, generating: float, altogether: float) -> None:
    """The limits that the project sets itself, in processor time, with room for a busy machine."""
    start = time.process_time()
    schedule = generate(asked)
    generated = time.process_time()
    check(lower(schedule, sync="eager", tied=True))
    checked = time.process_time()
    assert generated - start <= 1.5 * generating
    assert checked - start <= 1.5 * altogether
