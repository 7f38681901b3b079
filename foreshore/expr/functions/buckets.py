"""width_bucket: the number of the interval, of several equal ones, that contains a value.

The intervals are closed at the lower bound and numbered from 1, from the first bound to the second,
which may be the lesser one. Values outside are in 0 or count + 1.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.expr.equality import python_key
from foreshore.expr.functions.function import Outcome, Signature, declare
from foreshore.expr.functions.number import rows_of
from foreshore.expr.functions.rows import Failure, collect, fail, mapped, out_of_range
from foreshore.types import INT4, SqlType

_LARGEST = 2**31 - 1
T = TypeVar("T", float, Decimal)


def _between(operand: float, first: float, second: float, count: int) -> int:
    if count <= 0:
        raise fail("2201G", "count must be greater than zero")
    if math.isnan(operand) or math.isnan(first) or math.isnan(second):
        raise fail("2201G", "operand, lower bound, and upper bound cannot be NaN")
    if math.isinf(first) or math.isinf(second):
        raise fail("2201G", "lower and upper bounds must be finite")
    return _numbered(operand, first, second, count, _share)


def _exactly(operand: Decimal, first: Decimal, second: Decimal, count: int) -> int:
    if count <= 0:
        raise fail("2201G", "count must be greater than zero")
    return _numbered(operand, first, second, count, _exact_share)


def _of_numbers(operand: Decimal, first: Decimal, second: Decimal, count: int) -> int:
    if count > 0 and any(map(Decimal.is_nan, (operand, first, second))):
        raise fail("2201G", "operand, lower bound, and upper bound cannot be NaN")
    if count > 0 and (first.is_infinite() or second.is_infinite()):
        raise fail("2201G", "lower and upper bounds must be finite")
    return _exactly(operand, first, second, count)


def _numbered(
    operand: T, first: T, second: T, count: int, share: Callable[[T, T, T, int], int]
) -> int:
    """Return the interval's number; `share` is the number of intervals before the operand."""
    if first == second:
        raise fail("2201G", "lower bound cannot equal upper bound")
    if operand < first if first < second else operand > first:
        return 0
    if operand >= second if first < second else operand <= second:
        if count == _LARGEST:
            raise Failure(out_of_range(INT4))
        return count + 1
    return min(share(operand, first, second, count), count - 1) + 1


def _share(operand: float, first: float, second: float, count: int) -> int:
    if math.isinf(second - first):  # halves of the bounds are finite
        operand, first, second = operand / 2, first / 2, second / 2
    return int(count * ((operand - first) / (second - first)))


def _exact_share(operand: Decimal, first: Decimal, second: Decimal, count: int) -> int:
    start = Fraction(first)
    return math.floor(count * (Fraction(operand) - start) / (Fraction(second) - start))


def _among(operand: object, bounds: Sequence[object], type: SqlType) -> int:
    if None in bounds:
        raise fail("22004", "thresholds array must not contain NULLs")
    keys = [python_key(bound, type) for bound in bounds]
    return bisect_right(keys, python_key(operand, type))


def _of_thresholds(types: Signature, operands: pa.Array, thresholds: pa.Array) -> Outcome:
    """Return how many of the thresholds, in ascending order, are not beyond each operand."""
    element = types.args[0]
    columns = (from_array(operands, element), from_array(thresholds, types.args[1]))
    return collect(
        types, lambda operand, bounds: _among(operand, bounds, element), zip(*columns, strict=True)
    )


declare("width_bucket", "anycompatible anycompatiblearray", "int4", _of_thresholds, fallible=True)
declare("width_bucket", "float8 float8 float8 int4", "int4", mapped(_between), fallible=True)
declare("width_bucket", "numeric numeric numeric int4", "int4", mapped(_exactly), fallible=True)
declare("width_bucket", "number number number int4", "int4", rows_of(_of_numbers), fallible=True)
