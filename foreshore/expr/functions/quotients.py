"""Quotients of numerics, with PostgreSQL's digits as far as a numeric holds them.

PostgreSQL rounds a quotient to at least 16 significant digits. If it would keep more digits after
the point than the planned scale has, the quotient is rounded at that scale if 10 significant digits
remain. Otherwise, and if an exact quotient would lose a digit, the error is 22003.
"""

from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.expr.functions.decimals import (
    OVERFLOW,
    Ints,
    divide_half_up,
    errors_where,
    pack,
    scale_of,
    wide,
)
from foreshore.expr.functions.function import Outcome
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, Failure
from foreshore.types import SqlType

Types = tuple[SqlType, ...]

_LEAST_SIGNIFICANT = 10**9  # 10 digits
_WIDE = Context(prec=400)


def rounded_result(value: Decimal, digits: int, scale: int) -> Decimal:
    """Return an inexact result rounded to `digits` after the point, as in PostgreSQL.

    Fails if `scale`, the most that can be kept, leaves fewer than 10 significant digits.
    """
    places = min(digits, scale)
    rounded = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _WIDE)
    if digits > scale and rounded != value and abs(rounded.scaleb(places)) < _LEAST_SIGNIFICANT:
        full = value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)
        if full != rounded:
            raise Failure(OVERFLOW)
    return rounded


def either_error(errors: pa.Array, others: pa.Array) -> pa.Array:
    """Return each row's error, the first of two."""
    return pc.coalesce(errors, others)


def with_errors(values: pa.Array, errors: pa.Array) -> Outcome:
    """Return `values`, NULL where there is an error, and the errors."""
    return pc.if_else(errors.is_null(), values, pa.scalar(None, values.type)), errors


_POWERS = np.array([10**i for i in range(19)], dtype=np.uint64)


def _digit_counts(values: Ints) -> Any:
    absolute = np.abs(values)
    if values.dtype != object:
        # As unsigned numbers, in which the least integer has its absolute value.
        return np.searchsorted(_POWERS, absolute.view(np.uint64), side="right")
    return np.array([len(str(v)) if v else 0 for v in absolute], dtype=np.int64)


def _weights(values: Ints, scale: int) -> tuple[Any, Any]:
    """Return the weight and the first base-10000 digit of each value, as PostgreSQL stores it."""
    counts = _digit_counts(values)
    exponents = counts - 1 - scale
    weights = np.where(counts == 0, 0, np.floor_divide(exponents, 4))
    leading = exponents - 4 * weights + 1
    first = [
        0 if c == 0 else (v // 10 ** (c - k) if c >= k else v * 10 ** (k - c))
        for v, c, k in zip(
            np.abs(wide(values)).tolist(), counts.tolist(), leading.tolist(), strict=True
        )
    ]
    return weights, np.array(first, dtype=np.int64)


def _display_scales(values: Ints, type: SqlType) -> Any:
    """Return the display scale of each value in PostgreSQL."""
    scale = scale_of(type)
    if not type.trim:
        return np.full(len(values), scale)
    trimmed = [
        scale - (len(t) - len(t.rstrip("0"))) if v else 0
        for v, t in ((v, str(v)) for v in values.tolist())
    ]
    return np.maximum(np.array(trimmed, dtype=np.int64), 0)


def _divided(x: Ints, y: Ints, types: Types, result: SqlType) -> tuple[Ints, Ints]:
    """Return quotients in units of `result`, and which of them lack digits; `y` is never 0.

    They are rounded where PostgreSQL rounds them, or where `result` ends.
    """
    weights_x, first_x = _weights(x, scale_of(types[0]))
    weights_y, first_y = _weights(y, scale_of(types[1]))
    weight = weights_x - weights_y - (first_x <= first_y)
    wanted = np.maximum.reduce(
        [
            16 - 4 * weight,
            _display_scales(x, types[0]),
            _display_scales(y, types[1]),
            np.zeros(len(x), dtype=np.int64),
        ]
    )
    scale = scale_of(result)
    digits = np.minimum(wanted, scale)
    x, y = wide(x), wide(y)
    out = np.zeros(len(x), dtype=object)
    for count in np.unique(digits).tolist():
        here = digits == count
        shift = count + scale_of(types[1]) - scale_of(types[0])
        top, bottom = x[here], y[here]
        if shift >= 0:
            top = top * 10**shift
        else:
            bottom = bottom * 10**-shift
        out[here] = divide_half_up(top, bottom) * 10 ** (scale - count)
    lacking = np.zeros(len(x), dtype=bool)
    for i in np.flatnonzero(wanted > scale).tolist():
        shift = scale + scale_of(types[1]) - scale_of(types[0])
        units = Fraction(x[i], y[i]) * Fraction(10) ** shift
        ends = (units * 10 ** int(wanted[i] - scale)).denominator == 1
        lacking[i] = units.denominator != 1 and (ends or abs(out[i]) < _LEAST_SIGNIFICANT)
    return out, lacking


def quotients(x: Ints, y: Ints, types: Types, result: SqlType, valid: pa.Array | None) -> Outcome:
    """Return x / y as a column, and the errors."""
    zero = np.asarray(y == 0, dtype=bool)
    if valid is not None:
        zero &= valid.to_numpy(zero_copy_only=False)
    values, lacking = _divided(x, np.where(y == 0, 1, y), types, result)
    if valid is not None:
        lacking &= valid.to_numpy(zero_copy_only=False)
    packed, errors = pack(values, valid, scale_of(result))
    for mask, text in ((lacking, OVERFLOW), (zero, DIVISION_BY_ZERO)):
        found = errors_where(mask, text)
        if found is not None:
            errors = found if errors is None else either_error(found, errors)
    return (packed, None) if errors is None else with_errors(packed, errors)
