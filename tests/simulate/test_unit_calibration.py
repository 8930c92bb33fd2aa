import pytest

from bitpipe.errors import InputError
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
        ({"all_reduc": 1}, "calibration.all_reduc=1: allowed are name, all_reduce, transfer, sources"),
        ({"transfer": -1}, "calibration.transfer=-1: a time from 0"),
        ({"all_reduce": "long"}, "calibration.all_reduce=long: a time from 0"),
        ({"all_reduce": float("nan")}, "a time from 0"),
    ],
)
def test_bad_values_are_refused(data: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line.replace(".", r"\.")):
        calibration_of({"name": "unit", **data})
