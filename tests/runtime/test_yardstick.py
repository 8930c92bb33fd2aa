"""The steady virtual clock: what the machine's speed does, and what ranks count in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from training import RandomData, job_of, links_of

from bitpipe.runtime.block import run_block
from bitpipe.runtime.clocks.clock import VirtualClock
from bitpipe.runtime.clocks.clock import clock as clocks
from bitpipe.runtime.clocks.yardstick import UNIT, Yardstick
from bitpipe.runtime.processes.pool import Pool

LINKS = links_of(job_of("dapple", 4, 4, layout="sequential"), devices_per_node=2)


class Machine:
    """One whose speed halves and doubles; an operation of one unit of work takes 1/speed seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.speed = 1.0

    def thread_time(self) -> float:
        return self.seconds

    def work(self, units: float) -> None:
        self.seconds += units / self.speed


@pytest.mark.parametrize(("steady", "ends"), [(True, [1.0, 2.0, 3.0]), (False, [1.0, 3.0, 3.5])])
def test_equal_work_takes_equal_time_on_a_steady_clock(
    monkeypatch: pytest.MonkeyPatch, steady: bool, ends: list[float]
) -> None:
    machine = Machine()
    monkeypatch.setattr(clocks.time, "thread_time", machine.thread_time)
    clock = VirtualClock(LINKS, (lambda: machine.speed) if steady else None)
    clock.restart()
    found = []
    for machine.speed in (1.0, 0.5, 2.0):
        begun = clock.begin()
        machine.work(1.0)
        found.append(clock.end(begun)[1])
    assert found == ends
    assert clock.paces == ([1.0, 0.5, 2.0] if steady else [])
    clock.restart()
    assert clock.paces == []


def test_the_pace_is_one_when_the_core_is_as_fast_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    yardstick = Yardstick()
    assert 0 < yardstick.read() < 1
    monkeypatch.setattr(yardstick, "read", lambda: UNIT)
    assert yardstick.pace() == 1.0
    monkeypatch.setattr(yardstick, "read", lambda: 2 * UNIT)
    assert yardstick.pace() == 0.5


@pytest.mark.parametrize("steady", [True, False])
def test_a_run_says_how_fast_its_cores_were(pool_of: Callable[[int], Pool], steady: bool) -> None:
    job = job_of("dapple", 4, 4, iterations=3, precision="fp32", layout="sequential")
    (result,) = run_block(
        [job], clock="virtual", links=[LINKS], data=RandomData(), steady=steady, pool=pool_of(4)
    )
    assert result.status == "ok"
    assert len(result.paces) == (3 if steady else 0)
    assert all(0.01 < pace < 100 for pace in result.paces)
