"""Moments of numbers so small that the product of two sums of squares is 0."""

import math

import pytest

from foreshore.datum import to_array
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.function import Signature
from foreshore.expr.functions.registry import scalar_function
from foreshore.types import FLOAT8


@pytest.mark.parametrize(
    ("function", "sxy", "wanted"),
    [
        ("corr", -1e-200, -math.inf),
        ("corr", 1e-200, math.inf),
        ("corr", 0.0, math.nan),
        ("regr_r2", 1e-200, math.nan),
        ("regr_r2", 1.0, math.inf),
    ],
)
def test_quotient_is_that_of_ieee_754(function: str, sxy: float, wanted: float) -> None:
    types = Signature((FLOAT8,) * 3, FLOAT8)
    sums = [to_array([each], FLOAT8) for each in (1e-200, 1e-200, sxy)]
    values, errors = apply(scalar_function(f"{function}(float8,float8,float8)"), types, sums)
    assert errors is None
    assert repr(values[0].as_py()) == repr(wanted)
