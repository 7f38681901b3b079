"""Trigonometry in degrees, and inverse hyperbolic functions.

As in PostgreSQL, an angle is reduced to the first 30 or 60 degrees and the result is divided by
that of a known angle, so that sind(30), cosd(60) and tand(45) are exact.
"""

import math
from collections.abc import Callable

from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import fail, mapped

_RADIANS = 0.0174532925199432957692  # of one degree
_SIN_30 = math.sin(30 * _RADIANS)
_REST_COS_60 = 1 - math.cos(60 * _RADIANS)
_ASIN_HALF = math.asin(0.5)
_ACOS_HALF = math.acos(0.5)
_ATAN_1 = math.atan(1.0)


def _out_of_range() -> Exception:
    return fail("22003", "input is out of range")


def _sin_to_30(x: float) -> float:
    return (math.sin(x * _RADIANS) / _SIN_30) / 2


def _cos_to_60(x: float) -> float:
    return 1 - ((1 - math.cos(x * _RADIANS)) / _REST_COS_60) / 2


def _sin_to_90(x: float) -> float:
    return _sin_to_30(x) if x <= 30 else _cos_to_60(90 - x)


def _cos_to_90(x: float) -> float:
    return _cos_to_60(x) if x <= 60 else _sin_to_30(90 - x)


def _quotient(a: float, b: float) -> float:
    return math.copysign(math.inf, a) if b == 0 else a / b


_TAN_45 = _sin_to_90(45) / _cos_to_90(45)
_COT_45 = _cos_to_90(45) / _sin_to_90(45)


def _first_quadrant(x: float) -> tuple[float, bool, bool]:
    """Return the angle within 90 degrees, and whether it was in the left and the lower half."""
    if math.isinf(x):
        raise _out_of_range()
    x = math.fmod(x, 360)
    lower = x < 0
    x = abs(x)
    if x > 180:
        x, lower = 360 - x, not lower
    left = x > 90
    return (180 - x if left else x), left, lower


def _of_angle(compute: Callable[[float, bool, bool], float]) -> Callable[[float], float]:
    return lambda x: x if math.isnan(x) else compute(*_first_quadrant(x))


def _signed(negative: bool, value: float) -> float:
    return -value if negative else value


def _tand(x: float, left: bool, lower: bool) -> float:
    value = _quotient(_sin_to_90(x), _cos_to_90(x)) / _TAN_45
    return _signed(left != lower, value) or 0.0


def _cotd(x: float, left: bool, lower: bool) -> float:
    value = _quotient(_cos_to_90(x), _sin_to_90(x)) / _COT_45
    return _signed(left != lower, value) or 0.0


def _asin_to_90(x: float) -> float:
    if x <= 0.5:
        return (math.asin(x) / _ASIN_HALF) * 30
    return 90 - (math.acos(x) / _ACOS_HALF) * 60


def _acos_to_90(x: float) -> float:
    if x <= 0.5:
        return 90 - (math.asin(x) / _ASIN_HALF) * 30
    return (math.acos(x) / _ACOS_HALF) * 60


def _of_ratio(compute: Callable[[float], float]) -> Callable[[float], float]:
    def checked(x: float) -> float:
        if math.isnan(x):
            return x
        if not -1 <= x <= 1:
            raise _out_of_range()
        return compute(x)

    return checked


def _acosh(x: float) -> float:
    if x < 1:
        raise _out_of_range()
    return math.acosh(x)


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _cot(x: float) -> float:
    if math.isinf(x):
        raise _out_of_range()
    tangent = math.tan(x)
    return math.copysign(math.inf, tangent) if tangent == 0 else 1 / tangent


for _name, _compute in (
    ("sind", _of_angle(lambda x, left, lower: _signed(lower, _sin_to_90(x)))),
    ("cosd", _of_angle(lambda x, left, lower: _signed(left, _cos_to_90(x)))),
    ("tand", _of_angle(_tand)),
    ("cotd", _of_angle(_cotd)),
    ("asind", _of_ratio(lambda x: _asin_to_90(x) if x >= 0 else -_asin_to_90(-x))),
    ("acosd", _of_ratio(lambda x: _acos_to_90(x) if x >= 0 else 90 + _asin_to_90(-x))),
    ("acosh", _acosh),
    ("atanh", _of_ratio(_atanh)),
    ("cot", _cot),
):
    declare(_name, "float8", "float8", mapped(_compute), fallible=True)
declare("atand", "float8", "float8", mapped(lambda x: (math.atan(x) / _ATAN_1) * 45))
declare("asinh", "float8", "float8", mapped(math.asinh))
declare("atan2d", "float8 float8", "float8", mapped(lambda y, x: (math.atan2(y, x) / _ATAN_1) * 45))
