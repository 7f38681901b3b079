"""Variance, covariance, correlation and regression of floats, computed from their comoments.

`Sxy` is the sum of (x - mean(x)) * (y - mean(y)) over the pairs (y, x) without NULL, as the core
aggregate `comoment_float` returns it; `Sxx` is that of x with itself. As in PostgreSQL, a moment
beyond the greatest float is an error, and NaN if a value is NaN or infinite.
"""

import math
from collections.abc import Callable

from foreshore.expr.functions.function import hidden
from foreshore.expr.functions.rows import fail, mapped
from foreshore.expr.functions.spreads import SPREADS


def _checked(moment: float) -> float:
    if math.isinf(moment):
        raise fail("22003", "value out of range: overflow")
    return moment


def spread(sample: bool, root: bool) -> Callable[[float, int], float | None]:
    """Return the variance or deviation of a sample or population, given its moment and size."""

    def compute(moment: float, n: int) -> float | None:
        if n < (2 if sample else 1):
            return None
        value = _checked(moment) / (n - 1 if sample else n)
        return math.sqrt(value) if root else value

    return compute


def _moment(moment: float, n: int) -> float | None:
    return _checked(moment) if n else None


def _corr(sxx: float, syy: float, sxy: float) -> float | None:
    sxx, syy, sxy = map(_checked, (sxx, syy, sxy))
    return _quotient(sxy, math.sqrt(sxx * syy)) if sxx and syy else None


def _r2(sxx: float, syy: float, sxy: float) -> float | None:
    sxx, syy, sxy = map(_checked, (sxx, syy, sxy))
    if not sxx:
        return None
    return _quotient(sxy * sxy, sxx * syy) if syy else 1.0


def _quotient(a: float, b: float) -> float:
    """Return a / b as in IEEE 754, where the product of small numbers may be 0."""
    if b:
        return a / b
    return math.copysign(math.inf, a) if a and a == a else math.nan


def _slope(sxx: float, sxy: float) -> float | None:
    sxx, sxy = map(_checked, (sxx, sxy))
    return sxy / sxx if sxx else None


def _intercept(sxx: float, sxy: float, sx: float, sy: float, n: int) -> float | None:
    slope = _slope(sxx, sxy)
    return None if slope is None else (sy - sx * slope) / n


for _name, _sample, _root in SPREADS:
    hidden(
        f"{_name}(float8,int8)",
        "float8 int8",
        "float8",
        mapped(spread(_sample, _root)),
        fallible=True,
    )
for _name, _types, _compute in (
    ("moment", "float8 int8", _moment),
    ("corr", "float8 float8 float8", _corr),
    ("regr_r2", "float8 float8 float8", _r2),
    ("regr_slope", "float8 float8", _slope),
    ("regr_intercept", "float8 float8 float8 float8 int8", _intercept),
):
    hidden(
        f"{_name}({_types.replace(' ', ',')})",
        _types,
        "float8",
        mapped(_compute),
        fallible=True,
    )
