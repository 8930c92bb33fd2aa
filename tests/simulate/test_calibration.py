"""The calibrations that ship, the fit that made them, and what they are worth against the paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bitpipe.errors import InputError
from bitpipe.simulate import Calibration, conf, predict
from bitpipe.simulate.__main__ import main
from bitpipe.simulate.cells import ABLATION, MeasuredCell, Methods, read_cells, select
from bitpipe.simulate.fit import error, fit, leave_a_row_out, null_errors

A800 = conf.cluster("a800")
CELLS = read_cells()
ONE_NODE = select(CELLS, depths=[4, 8])
HELD_OUT = select(ONE_NODE, variants=["without_v", "without_e"])
FULL = select(CELLS, variants=["full"])


def mean(values: list[float]) -> float:
    return sum(map(abs, values)) / len(values)


def errors(cells: list[MeasuredCell], name: str) -> list[float]:
    calibration = conf.calibration(name)
    return [error(cell, A800, calibration) for cell in cells]


@pytest.mark.parametrize("name", ["physical", "full_cells"])
def test_at_most_two_fitted_parameters_explain_one_node(name: str) -> None:
    calibration = conf.calibration(name)
    assert set(calibration.fitted) <= {"compute_efficiency", "op_overhead"}
    full, held = select(ONE_NODE, variants=["full"]), errors(HELD_OUT, name)
    made = fit(full, A800, conf.calibration("physical"), calibration.fitted)
    left = leave_a_row_out(made, conf.calibration("physical"), calibration.fitted)
    assert mean(errors(full, name)) <= 0.011
    assert mean(held) <= 0.015
    assert mean(held) < mean(list(null_errors(HELD_OUT, FULL)))
    assert len(left) == 4
    assert max(map(abs, left.values())) <= 0.04


@pytest.mark.parametrize("name", ["physical", "full_cells", "full_cells_two_nodes", "two_node_cells"])
def test_the_full_method_is_never_behind_its_ablations_on_one_node(name: str) -> None:
    calibration = conf.calibration(name)
    speed = {(c.row, c.variant): predict(c.job, A800, calibration).samples_per_s for c in CELLS}
    for row in {cell.row for cell in CELLS}:
        assert speed[row, "full"] >= speed[row, "without_e"]
        if row[1] <= 8:
            assert speed[row, "full"] == pytest.approx(speed[row, "without_m"], rel=1e-9)
            assert speed[row, "full"] >= speed[row, "without_v"]


def test_ablations_are_predicted_from_full_cells_better_than_by_the_null_model() -> None:
    held = errors(HELD_OUT, "full_cells")
    null = list(null_errors(HELD_OUT, FULL))
    assert len(held) == len(null) == 8
    assert mean(held) <= 0.010
    assert max(map(abs, held)) <= 0.025
    assert mean(held) < mean(null)
    assert max(map(abs, held)) < max(map(abs, null))


def test_the_null_model_is_as_good_as_the_paper_s_numbers_make_it() -> None:
    assert mean(list(null_errors(HELD_OUT, FULL))) == pytest.approx(0.0125, abs=0.0001)


def test_one_declared_cell_across_nodes_calibrates_the_other_seven() -> None:
    calibration = conf.calibration("full_cells_two_nodes")
    assert "bert_64 D=16 N=16 W=1 B=4 full" in calibration.cells
    rest = [c for c in select(CELLS, depths=[16]) if str(c) not in calibration.cells]
    assert len(rest) == 7
    assert mean(errors(rest, calibration.name)) <= 0.025
    assert max(map(abs, errors(rest, calibration.name))) <= 0.06


def test_without_a_cell_across_nodes_depth_16_is_marked() -> None:
    cell = select(CELLS, depths=[16])[0]
    assert not predict(cell.job, A800, conf.calibration("full_cells")).calibrated
    assert predict(cell.job, A800, conf.calibration("full_cells_two_nodes")).calibrated


def test_the_shipped_fit_is_what_fitting_gives() -> None:
    shipped = conf.calibration("full_cells")
    made = fit(select(ONE_NODE, variants=["full"]), A800, conf.calibration("physical"), shipped.fitted)
    assert made.degrees_of_freedom == 2
    assert made.calibration.tokens == shipped.tokens == (2048, 2048)
    assert made.calibration.precision == shipped.precision == "fp16"
    for parameter in shipped.fitted:
        assert getattr(made.calibration, parameter) == pytest.approx(getattr(shipped, parameter), rel=0.02)


def test_a_fit_recovers_the_parameters_that_made_its_cells() -> None:
    truth = replace(conf.calibration("physical"), compute_efficiency=0.41, op_overhead=5e-4)
    made = [
        replace(cell, samples_per_s=predict(cell.job, A800, truth).samples_per_s)
        for cell in select(ONE_NODE, variants=["full"])
    ]
    names = ("compute_efficiency", "op_overhead")
    found = fit(made, A800, conf.calibration("physical"), names).calibration
    assert found.compute_efficiency == pytest.approx(0.41, rel=1e-3)
    assert found.op_overhead == pytest.approx(5e-4, rel=1e-2)
    left = leave_a_row_out(fit(made, A800, truth, names), truth, names)
    assert max(map(abs, left.values())) < 1e-3


def test_equal_cells_of_one_row_are_one_measurement() -> None:
    cells = select(ONE_NODE, variants=["full", "without_m"])
    assert fit(cells, A800, conf.calibration("physical"), ["compute_efficiency"]).degrees_of_freedom == 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["compute_eficiency"], "did you mean compute_efficiency"),
        ([], "from one to five"),
        (["compute_efficiency", "op_overhead"], "no more than the 1 cells"),
    ],
)
def test_fits_that_mean_nothing_are_refused(parameters: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(CELLS[:1], A800, conf.calibration("physical"), parameters)


@pytest.mark.parametrize("parameter", ["p2p_inter_efficiency", "all_reduce_inter_efficiency"])
def test_a_parameter_that_no_cell_depends_on_is_not_called_fitted(parameter: str) -> None:
    cells = select(ONE_NODE, variants=["full"])
    with pytest.raises(InputError, match=f"parameters={parameter}: none of the cells depends on it"):
        fit(cells, A800, conf.calibration("physical"), [parameter])


def test_no_cell_left_is_said() -> None:
    with pytest.raises(InputError, match="no cell has all of these"):
        select(CELLS, depths=[4], micro_batches=[64])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op_overhed": 1}, "calibration.op_overhed=1: allowed are"),
        ({"compute_efficiency": 0}, "calibration.compute_efficiency=0.0: must be positive"),
        ({"op_overhead": "much"}, "calibration.op_overhead=much: a number"),
        ({"fitted": ["luck"]}, "calibration.fitted=luck"),
        ({"op_overhed": 1}, r"\(did you mean op_overhead\?\)"),
        ({1: 2}, "calibration.1=2: allowed are"),
        ({"compute_efficiency": None}, "calibration.compute_efficiency=None: a number"),
        ({"all_reduce_efficiency": None}, "calibration.all_reduce_efficiency=None: a number"),
        ({"gradient_bytes": None}, "calibration.gradient_bytes=None: a number"),
        ({"head_efficiency": True}, "calibration.head_efficiency=True: a number"),
        ({"op_overhead": [1]}, r"calibration.op_overhead=\[1\]: a number"),
        ({"op_overhead": float("inf")}, "calibration.op_overhead=inf: must be finite"),
        ({"optimizer_bytes": ".nan"}, "calibration.optimizer_bytes=.nan: a number"),
        ({"optimizer_bytes": float("nan")}, "calibration.optimizer_bytes=nan: must be finite"),
        ({"optimizer_bytes": 10**400}, "calibration.optimizer_bytes=10+: a number"),
        ({"p2p_inter_efficiency": 1.6}, "calibration.p2p_inter_efficiency=1.6: .* at most 1.5"),
        ({"name": 5}, "calibration.name=5: expected text"),
        ({"device": None}, "calibration.device=None: expected text"),
        ({"sources": ["a"]}, r"calibration.sources=\['a'\]: expected a mapping"),
        ({"sources": None}, "calibration.sources=None: expected a mapping"),
        ({"fitted": "compute_efficiency"}, "calibration.fitted=compute_efficiency: expected a list"),
        ({"tokens": [1]}, r"calibration.tokens=\[1\]: two numbers"),
        ({"tokens": [4, 2]}, r"calibration.tokens=\[4, 2\]: two numbers .*the least first"),
        ({"tokens": "all"}, "calibration.tokens=all: two numbers"),
        ({"memory_efficiency": 0}, "calibration.memory_efficiency=0.0: must be positive"),
        ({"replica_bytes": -1}, "calibration.replica_bytes=-1.0: must be positive"),
        ({"fitted": None}, "calibration.fitted=None: expected a list"),
        ({"fitted": [["compute_efficiency"]]}, "calibration.fitted=.*: allowed are"),
    ],
)
def test_bad_calibrations_are_refused_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Calibration.from_mapping(conf.read("calibration", "physical") | change)
    assert "\n" not in str(caught.value)


def test_numbers_that_yaml_reads_as_text_are_numbers_and_across_nodes_may_be_unknown() -> None:
    data = conf.read("calibration", "physical") | {"op_overhead": "1e-4", "p2p_inter_efficiency": None}
    made = Calibration.from_mapping(data)
    assert (made.op_overhead, made.p2p_inter_efficiency) == (1e-4, None)


def test_a_missing_value_is_named() -> None:
    data = conf.read("calibration", "physical")
    del data["head_efficiency"]
    with pytest.raises(InputError, match=r"calibration\.head_efficiency=missing"):
        Calibration.from_mapping(data)


def test_every_number_of_a_shipped_calibration_says_where_it_comes_from() -> None:
    for name in ("physical", "full_cells", "full_cells_two_nodes", "two_node_cells"):
        data = conf.read("calibration", name)
        numbers = set(data) - {"name", "device", "precision", "tokens", "fitted", "cells", "sources"}
        assert numbers == set(data["sources"]), name


def test_the_command_line_prints_the_fit_with_what_it_is_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.yaml"
    assert main(["calibrate", "--depths", "4", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for line in ("1 degrees of freedom left", "leave a row out", "null model"):
        assert line in printed
    again = conf.calibration(str(out))
    assert again.name == "mine"
    assert again.fitted == ("compute_efficiency",)
    assert main(["table", "--calibration", str(out)]) == 0
    assert capsys.readouterr().out.count("uncalibrated") == 8


def test_the_command_line_answers_bad_input_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--cluster", "a80"]) == 2
    assert capsys.readouterr().err == (
        "cluster=a80: allowed are a100, a800, h100, h200, laptop (did you mean a800?)\n"
    )


def test_a_table_without_a_needed_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("model,depth\nbert-64,4\n")
    with pytest.raises(InputError, match="column data_parallel is missing"):
        read_cells(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_cells(tmp_path / "none.csv")


def test_table_6_holds_what_is_printed_and_takes_the_rest_from_the_assumptions() -> None:
    header = ABLATION.read_text().splitlines()[0]
    assert header == "model,depth,global_batch,variant,samples_per_s"
    assert {(cell.job.width, cell.job.micro_batch_size) for cell in CELLS} == {(1, 4)}
    assert {(c.job.schedule.depth, c.job.schedule.micro_batches) for c in CELLS} == {
        (depth, factor * depth) for depth in (4, 8, 16) for factor in (1, 4)
    }


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(InputError, match="variant=without_x"):
        Methods().job("without_x", model=conf.model("bert_64"), depth=4, width=1, size=4, micro_batches=4)


def test_what_one_cluster_lost_between_its_nodes_is_not_carried_to_another() -> None:
    """Compute rates travel with the calibration as shares of the peak; a network's losses do not."""
    cell = next(cell for cell in CELLS if cell.job.schedule.depth == 16)
    other = replace(A800, name="other", device=replace(A800.device, name="NVIDIA B200"))
    two, one = (predict(cell.job, other, conf.calibration(name)) for name in ("two_node_cells", "full_cells"))
    assert not two.calibrated
    assert two.iteration_seconds == pytest.approx(one.iteration_seconds)
