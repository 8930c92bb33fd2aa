import pytest

from bitpipe.errors import InputError
from bitpipe.schedule import UNIT, Costs
from bitpipe.simulate.calibration import Calibration
from bitpipe.simulate.unit_calibration import UnitCalibration, calibration_of


def test_the_name_tells_which_kind_it_is() -> None:
    unit = calibration_of({"name": "unit", "all_reduce": 1, "sources": {"all_reduce": "assumed"}})
    assert unit == UnitCalibration(all_reduce=1.0, sources={"all_reduce": "assumed"})
    with pytest.raises(InputError, match=r"calibration\."):
        calibration_of({"name": "physical"})
    assert not isinstance(unit, Calibration)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            {"all_reduc": 1},
            "calibration.all_reduc=1: allowed are name, forward, input_grad, weight_grad, all_reduce",
        ),
        ({"transfer": -1}, "calibration.transfer=-1: a time from 0"),
        ({"all_reduce": "long"}, "calibration.all_reduce=long: a time from 0"),
        ({"all_reduce": float("nan")}, "a time from 0"),
        ({"weight_grad": -0.5}, "calibration.weight_grad=-0.5: a time from 0"),
        ({"forward": 0}, "calibration.forward=0: a time above 0"),
        ({"forward": True}, "calibration.forward=True: a time above 0"),
    ],
)
def test_bad_values_are_refused(data: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line.replace(".", r"\.")):
        calibration_of({"name": "unit", **data})


def test_times_may_be_in_any_unit_and_costs_are_in_forwards() -> None:
    unit = UnitCalibration(forward=20.0, input_grad=18.0, weight_grad=10.0, transfer=0.5)
    assert unit.costs == Costs(backward=1.4, input_grad=0.9, weight_grad=0.5, transfer=0.025)
    assert UnitCalibration().costs == UNIT
