"""Aggregates over numerics without a declared scale, composed as `number_sums.py` says."""

from foreshore.expr.functions.parts import unit_of
from foreshore.expr.ir import Aggregate, Call, Column, Scalar
from foreshore.types import (
    BOOL,
    INT4,
    INT8,
    NUMBER,
    NUMERIC,
    UNCONSTRAINED_SCALE,
    array_of,
    numeric_of_scale,
)

_WHOLE = numeric_of_scale(0)
_REST = numeric_of_scale(UNCONSTRAINED_SCALE)
_NUMBERS = array_of(NUMBER)

assert unit_of(UNCONSTRAINED_SCALE) == 1  # so the parts add up to the sum


def sums_of(arg: Scalar, at: int) -> tuple[tuple[Aggregate, ...], Scalar]:
    """Return the core aggregates of the sum of `arg`, of which the first is the `at`th, and it."""
    value = Call("number_value(number)", (arg,), NUMERIC)
    cores = (
        Aggregate("sum", (Call("high_part(numeric)", (value,), _WHOLE),), _WHOLE),
        Aggregate("sum", (Call("low_part(numeric)", (value,), _REST),), _REST),
        Aggregate("max", (Call("number_scale(number)", (arg,), INT4),), INT4),
        Aggregate(
            "array_agg",
            (arg,),
            _NUMBERS,
            filter=Call("number_is_other(number)", (arg,), BOOL),
        ),
    )
    results = tuple(Column(at + i, core.type) for i, core in enumerate(cores))
    return cores, Call("number_sum(numeric,numeric,int4,number[])", results, NUMBER)


def sum_of_distinct(arg: Scalar) -> tuple[tuple[Aggregate, ...], Scalar]:
    """Return the core aggregate of the sum of the distinct values of `arg`, and the sum."""
    core = Aggregate("array_agg", (arg,), _NUMBERS)
    return (core,), Call("number_sum_of(number[])", (Column(0, _NUMBERS),), NUMBER)


def average_of(total: Scalar, counted: int) -> Scalar:
    """Return the average of a sum, given the number of the core that counts."""
    return Call("average(number,int8)", (total, Column(counted, INT8, False)), NUMBER)
