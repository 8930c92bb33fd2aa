"""Cells in the paper's unit of time: exact figures, no seconds, a timeline to draw."""

import json
from collections.abc import Callable

import pytest

from bitpipe.schedule import Timeline
from experiments.composing.sweep import Sweep
from experiments.records.record import Record, Status
from experiments.records.store import Store
from experiments.running.block import group
from experiments.running.execute import run_block

UNIT = "backend=simulate calibration=unit depth=4 micro_batches=4"


def run(sweep: Sweep) -> list[Record]:
    records: list[Record] = []
    for block in group(sweep.experiment, sweep.cells, sweep.settings):
        records += run_block(block, lambda record, name: None)
    return records


def test_a_record_has_the_schedule_s_figures_and_no_seconds(planned: Callable[..., Sweep]) -> None:
    sweep = planned(f"{UNIT} method=bitpipe")
    (record,) = run(sweep)
    assert record.status is Status.OK
    assert record.metrics["makespan_units"] == 14
    assert record.metrics["bubble_ratio"] == pytest.approx(1 / 7)
    assert record.metrics["transfers"] == 48
    assert record.metrics["samples_per_s"] is None
    peaks = dict(zip(record.devices["device"], record.devices["peak_activation_ma"], strict=True))
    assert peaks == {0: 3.5, 1: 4, 2: 4, 3: 3.5}
    assert list(record.devices["weights_m_theta"]) == [2, 2, 2, 2]


def test_the_timeline_beside_the_record_ends_with_the_last_all_reduce(planned: Callable[..., Sweep]) -> None:
    sweep = planned(f"{UNIT} method=bitpipe calibration.all_reduce=1.0 method.sync=late")
    (record,) = run(sweep)
    folder = Store(sweep.settings.results).attempt(record.cell, record.attempt)
    timeline = Timeline.of(json.loads((folder / str(record.timeline)).read_text()))
    assert timeline.unit == "stage forward"
    last = {event.device: event.end for event in timeline.compute}
    ends = dict(zip(record.devices["device"], (last[rank] for rank in range(4)), strict=True))
    assert ends == {0: 14, 1: 13, 2: 13, 3: 14}
    assert timeline.makespan == record.metrics["iteration_units"] == 18
    assert record.metrics["makespan_units"] == 14


def test_every_replica_has_its_rows(planned: Callable[..., Sweep]) -> None:
    (record,) = run(planned(f"{UNIT} method=bitpipe width=2"))
    assert list(record.devices["replica"]) == [0, 0, 1, 1, 0, 0, 1, 1]  # replicas of a stage as neighbours
    assert len(record.devices["peak_activation_ma"]) == 8


def test_what_an_all_reduce_takes_is_part_of_the_cell_and_why_is_not(planned: Callable[..., Sweep]) -> None:
    ids = [
        planned(f"{UNIT} calibration.all_reduce={value} calibration.sources.all_reduce={why}").cells[0].id
        for value, why in ((0.0, "a"), (0.0, "b"), (1.0, "a"))
    ]
    assert ids[0] == ids[1] != ids[2]


def test_the_costs_of_halves_of_a_backward_are_part_of_the_cell(planned: Callable[..., Sweep]) -> None:
    """In any unit: twice all times are the same results, in forwards. The paper's own costs add nothing."""
    common = f"{UNIT} method=zb_h1 timelines=false"
    plain, costly, doubled = (
        planned(f"{common} {costs}")
        for costs in (
            "calibration.weight_grad=1",
            "calibration.forward=1 calibration.weight_grad=0.5",
            "calibration.forward=2 calibration.input_grad=2 calibration.weight_grad=1",
        )
    )
    assert "weight_grad" not in plain.cells[0].identity()["calibration"]
    (at_paper,), (one,), (two,) = run(plain), run(costly), run(doubled)
    assert one.metrics == two.metrics
    assert one.timeline is None, "none was asked for"
    assert (at_paper.metrics["span_units"], at_paper.metrics["lower_bound_units"]) == (15, 15)
    assert one.metrics["makespan_units"] == 14.5
    assert one.metrics["lower_bound_units"] is None, "the bound is one at the paper's costs"


def test_older_cells_keep_their_ids(planned: Callable[..., Sweep]) -> None:
    identity = planned(f"{UNIT} method=bitpipe").cells[0].identity()
    assert identity["calibration"] == {"name": "unit", "all_reduce": 0.0, "transfer": 0.0}
