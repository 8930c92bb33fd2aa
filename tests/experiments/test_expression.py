"""Whole numbers as arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitpipe.errors import InputError
from experiments.composing.expression import whole


@pytest.mark.parametrize(
    ("text", "value"),
    [("4*depth", 32), ("depth", 8), (7, 7), ("32//depth", 4), ("(3*depth-2)/2", 11), ("-depth + 20", 12)],
)
def test_means_what_it_says(text: object, value: int) -> None:
    assert whole("n", text, {"depth": 8}) == value


@pytest.mark.parametrize(
    "text",
    ["dept", "depth/3", "1.5", "0", "-1", "", "depth**2", "__import__('os')", "1/0", None, True, "4 4"],
)
def test_anything_else_is_refused_by_one_line_that_names_key_and_value(text: object) -> None:
    with pytest.raises(InputError) as error:
        whole("micro_batches", text, {"depth": 8})
    assert str(error.value).startswith(f"micro_batches={text}")
    assert "\n" not in str(error.value)


@given(a=st.integers(1, 10**6), b=st.integers(1, 10**6))
def test_is_exact(a: int, b: int) -> None:
    assert whole("n", f"a*b/{b}", {"a": a, "b": b}) == a
