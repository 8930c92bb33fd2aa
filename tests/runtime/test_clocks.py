"""Virtual and deadline time, and what they have to agree with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from training import RandomData, emulated, job_of, links_of, model_of

from bitpipe.cluster import LinkClass
from bitpipe.errors import InputError
from bitpipe.runtime.block import run_block
from bitpipe.runtime.clocks.clock import Issue, Nominal, VirtualClock, resolve
from bitpipe.runtime.processes.pool import Pool
from bitpipe.schedule import Costs, Kind, evaluate, generate
from bitpipe.schedule.costs import ListedCosts
from bitpipe.simulate import conf, predict
from bitpipe.simulate.engine import simulate

A, B, C = ((Kind.SYNC, stage) for stage in range(3))


def issue(group: tuple[Kind, int], issued: float, drained: float = 0.0) -> Issue:
    return Issue(group=group, issued=issued, drained=drained)


def test_an_all_reduce_waits_for_its_last_member_its_streams_and_its_ports() -> None:
    spans = resolve(
        [[issue(A, 1.0), issue(B, 2.0)], [issue(A, 3.0), issue(C, 3.0)], [issue(B, 0.0), issue(C, 1.0, 9.0)]],
        {A: (0, 1), B: (0, 2), C: (1, 2)},
        lambda group: 2.0,
    )
    assert spans == {A: (3.0, 5.0), B: (5.0, 7.0), C: (9.0, 11.0)}


def test_orders_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="contradict"):
        resolve(
            [[issue(A, 0), issue(B, 0)], [issue(B, 0), issue(A, 0)]], {A: (0, 1), B: (0, 1)}, lambda _: 1.0
        )


def test_messages_share_a_port_and_not_the_links_of_another_class() -> None:
    links = links_of(
        job_of("dapple", 4, 4, layout="sequential"), devices_per_node=2, bandwidth=100.0, latency=1.0
    )
    clock = VirtualClock(links)
    clock.restart()
    assert clock.send(LinkClass.INTRA, 200.0) == 3.0, "2 s on the port, 1 s on the way"
    assert clock.send(LinkClass.INTRA, 100.0) == 4.0, "waits for the port"
    assert clock.send(LinkClass.INTER, 25.0) == 2.0 + 5.0, "an eighth of the bandwidth, another port"
    clock.receive(10.0)
    assert clock.now == 10.0
    assert clock.send(LinkClass.INTRA, 100.0) == 12.0


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("dapple", {}),
        ("1f1b_int", {}),
        ("bitpipe", {}),
        ("bitpipe", {"placement": "cyclic", "layout": "sequential", "sync": "late"}),
        ("bitpipe", {"split_backward": True}),
    ],
)
@pytest.mark.parametrize("width", [1, 2])
def test_the_simulator_finds_the_same_times(
    pool_of: Callable[[int], Pool], method: str, changes: dict[str, Any], width: int
) -> None:
    """Fed a run's own durations, an independent engine must find its makespan, step by step."""
    job = job_of(method, 4, 8, width=width, iterations=2, precision="fp32", **changes)
    links = links_of(job, devices_per_node=2, bandwidth=2e7, latency=2e-4)
    (result,) = run_block([job], clock="virtual", links=[links], data=RandomData(), pool=pool_of(job.ranks))
    assert result.status == "ok"
    simulated = simulate(result.program, ListedCosts(result.durations(), result.size), links)
    assert simulated.makespan == pytest.approx(result.seconds[-1], rel=1e-9)
    found = {(e.device, e.action): (e.start, e.end) for e in simulated.events}
    for event in result.timeline().events:
        assert found[event.device, event.action] == pytest.approx(
            (event.start, event.end), rel=1e-6, abs=1e-9
        )


@pytest.mark.parametrize("layout", ["replica_aware", "sequential"])
def test_a_run_counts_the_messages_that_a_prediction_counts(
    pool_of: Callable[[int], Pool], layout: str
) -> None:
    """On two nodes of four; the mapping keeps gradient sync inside a node."""
    job = job_of("bitpipe", 4, 4, width=2, iterations=1, precision="fp32", layout=layout)
    cluster = replace(conf.cluster("a800"), nodes=2, devices_per_node=4)
    (run,) = run_block(
        [job],
        clock="virtual",
        links=[links_of(job, devices_per_node=4)],
        data=RandomData(),
        pool=pool_of(job.ranks),
    )
    predicted = predict(job, cluster, conf.calibration("full_cells")).traffic
    counted = {(t.kind, t.link): (t.messages, t.bytes) for t in run.traffic}
    near = {(t.kind, t.link): (t.messages, pytest.approx(t.bytes, rel=1e-3)) for t in predicted}
    assert counted == near, "but for what aligns the parts of a flat buffer"
    across = {kind for kind, link in counted if link is LinkClass.INTER}
    assert ("gradient_sync" in across) is (layout == "sequential")


def test_transfers_cost_what_the_links_say(pool_of: Callable[[int], Pool]) -> None:
    """A slower link lengthens the virtual iteration by much more than noise."""
    job = job_of("dapple", 4, 4, iterations=3, precision="fp32")
    fast, slow = (links_of(job, bandwidth=b, latency=0.0) for b in (1e12, 1e5))
    results = run_block(
        [job, job], clock="virtual", links=[fast, slow], data=RandomData(), pool=pool_of(job.ranks)
    )
    assert results[1].seconds[-1] - results[0].seconds[-1] > 2 * 3 * results[0].message_bytes / 1e5


NOMINAL = Nominal(forward=0.02, backward=0.04)


@pytest.mark.parametrize("method", ["dapple", "bitpipe"])
def test_emulation_keeps_to_the_exact_makespan(pool_of: Callable[[int], Pool], method: str) -> None:
    job = job_of(method, 4, 4, iterations=2, sync="none")
    (result,) = emulated([job], [NOMINAL], pool_of(job.ranks))
    exact = evaluate(generate(job.schedule), Costs()).makespan * NOMINAL.forward
    exact *= generate(job.schedule).chunks  # evaluate counts stages, NOMINAL is per chunk
    assert result.timeline().makespan == pytest.approx(exact)
    assert exact <= result.seconds[-1] <= exact + result.lag


def test_what_ranks_agree_on_after_an_iteration_is_no_part_of_its_time(
    pool_of: Callable[[int], Pool],
) -> None:
    """The last device of a 1F1B is done long before the first; waiting for it is not lag."""
    job = job_of("dapple", 4, 4, iterations=3, sync="none")
    (result,) = emulated([job], [NOMINAL], pool_of(job.ranks))
    drain = 3 * NOMINAL.backward  # from the last device's end to the first's
    assert min(result.reports[0].lag) < drain
    for late, seconds in zip(result.reports[0].late, result.seconds, strict=True):
        assert seconds == pytest.approx(result.timeline().makespan + late)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", ["dapple", "1f1b_int", "chimera", "bitpipe"])
@pytest.mark.parametrize("width", [1, 4])
def test_32_emulated_ranks_stay_within_2_percent(
    pool_of: Callable[[int], Pool], method: str, width: int
) -> None:
    """10 ms per stage forward, D=8, N=8; the best of five iterations on a machine that may be busy."""
    job = job_of(method, 8, 8, width=width, iterations=5, sync="none", model=model_of(layers=16))
    schedule = generate(job.schedule)
    chunk = 0.01 / schedule.chunks
    nominal = Nominal(forward=chunk, backward=2 * chunk)
    (result,) = emulated([job], [nominal], pool_of(job.ranks))
    assert min(result.seconds) == pytest.approx(evaluate(schedule).makespan * 0.01, rel=0.02)
    assert result.lag > 0


def test_clocks_ask_for_what_they_need() -> None:
    job = job_of("dapple", 2, 2)
    with pytest.raises(InputError, match="needs nominal durations"):
        run_block([job], clock="deadline", links=[links_of(job)], data=None)
    with pytest.raises(InputError, match="needs data"):
        run_block([job], clock="virtual", links=[links_of(job)], data=None)
    with pytest.raises(InputError, match="did you mean virtual"):
        run_block([job], clock="virtuel", links=[links_of(job)], data=RandomData())
