"""Sums of numerics without a declared scale, composed of aggregates that all engines maintain.

    sum(x)  =  number_sum(sum(high_part(v)), sum(low_part(v)), max(scale), array_agg(x) of others)

Here v is the decimal of a number, and the others are those that it does not hold: their array is
nearly always empty. Averages and variances are computed from sums.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import number_roots, numbers
from foreshore.datum import from_array
from foreshore.expr.functions.function import Outcome, Signature, hidden
from foreshore.expr.functions.number import NO_REST, rows_of, shown_or_null
from foreshore.expr.functions.rows import computed, single
from foreshore.expr.functions.spreads import SPREADS
from foreshore.numbers import column_of
from foreshore.types import NUMERIC, SqlType


def _value(types: Signature, a: pa.Array) -> Outcome:
    """Return the decimals of numbers, NULL where they are not the value."""
    exact = pc.and_(a.is_valid(), pc.equal(a.field("rest"), NO_REST))
    value = a.field("value")
    return pc.if_else(exact, value, pa.scalar(None, value.type))


def _is_other(types: Signature, a: pa.Array) -> Outcome:
    return pc.not_equal(a.field("rest"), NO_REST)


def _scale(types: Signature, a: pa.Array) -> Outcome:
    return a.field("scale").cast(pa.int32())


def _value_of_one(datum: Any) -> Decimal | None:
    value, rest, _ = numbers.parts_of(numbers.number(datum))
    return None if rest else value


def _collected(compute: Callable[..., Decimal | None], rows: Iterable[tuple[Any, ...]]) -> Outcome:
    """Return the numbers that `compute` gives for rows, which may contain None."""
    values, errors = computed(lambda row: compute(*row), ((row,) for row in rows))
    column = column_of(values)
    return column if errors is None else (column, errors)


def _lists_of(column: pa.Array, type: SqlType) -> list[list[Decimal]]:
    """Return the numbers within arrays."""
    lists: list[Any] = from_array(column, type)
    return [[numbers.number(item) for item in items or () if item is not None] for items in lists]


def _added(values: Iterable[Decimal], scale: int) -> Decimal:
    total = numbers.ZERO
    for value in values:
        total = numbers.WIDE.add(total, value)
    return numbers.bounded(numbers.with_scale(total, scale))


def _total(
    high: Decimal | None, low: Decimal | None, scale: int | None, others: Sequence[Decimal]
) -> Decimal | None:
    if scale is None:
        return None
    return _added((high or numbers.ZERO, low or numbers.ZERO, *others), scale)


def _sum(
    types: Signature, high: pa.Array, low: pa.Array, scale: pa.Array, others: pa.Array
) -> Outcome:
    lists = _lists_of(others, types.args[3])
    columns = [column.to_pylist() for column in (high, low, scale)]
    return _collected(_total, zip(*columns, lists, strict=True))


def _sum_of_one(high: Any, low: Any, scale: Any, others: Any) -> str | None:
    first, second = (None if each is None else Decimal(each) for each in (high, low))
    items = [numbers.number(item) for item in others or () if item is not None]
    return shown_or_null(_total(first, second, scale, items))


def _sum_of(types: Signature, items: pa.Array) -> Outcome:
    def total(values: list[Decimal]) -> Decimal | None:
        return _added(values, max(map(numbers.scale_of, values))) if values else None

    return _collected(total, ((values,) for values in _lists_of(items, types.args[0])))


def _average(total: Decimal, count: int) -> Decimal | None:
    return numbers.divided(total, Decimal(count)) if count else None


def _variance(*, sample: bool, root: bool) -> Callable[..., Decimal | None]:
    def compute(total: Decimal, squares: Decimal, count: int) -> Decimal | None:
        if count < (2 if sample else 1):
            return None
        if not (total.is_finite() and squares.is_finite()):
            return numbers.NAN
        wide, rows = numbers.WIDE, Decimal(count)
        above = wide.subtract(wide.multiply(rows, squares), wide.multiply(total, total))
        if above <= 0:
            return numbers.ZERO
        below = Decimal(count * (count - 1) if sample else count * count)
        above = numbers.with_scale(above, 2 * numbers.scale_of(total))
        variance = numbers.divided(above, below)
        return number_roots.sqrt_to(variance, numbers.scale_of(variance)) if root else variance

    return compute


def variance_of(name: str, lists: Sequence[Any]) -> Outcome:
    """Return the column of a variance or deviation of the numbers in each list."""
    compute = next(_variance(sample=s, root=r) for known, s, r in SPREADS if known == name)

    def of(items: Sequence[Any]) -> Decimal | None:
        values = [numbers.number(item) for item in items if item is not None]
        if not values:
            return None
        squares = [numbers.WIDE.multiply(value, value) for value in values]
        scale = max(map(numbers.scale_of, values))
        return compute(_added(values, scale), _added(squares, 2 * scale), len(values))

    values, errors = computed(of, ((items,) for items in lists))
    column = column_of(values)
    return column if errors is None else (column, errors)


hidden(
    "number_value(number)",
    "number",
    lambda types, literals: NUMERIC,
    _value,
    one=lambda types: single(_value_of_one, types.result),
)
hidden(
    "number_is_other(number)",
    "number",
    "bool",
    _is_other,
    one=lambda types: lambda datum: bool(numbers.parts_of(numbers.number(datum))[1]),
)
hidden(
    "number_scale(number)",
    "number",
    "int4",
    _scale,
    one=lambda types: lambda datum: numbers.parts_of(numbers.number(datum))[2],
)
hidden(
    "number_sum(numeric,numeric,int4,number[])",
    "numeric numeric int4 number[]",
    "number",
    _sum,
    one=lambda types: _sum_of_one,
    strict=False,
    fallible=True,
)
hidden("number_sum_of(number[])", "number[]", "number", _sum_of, fallible=True)
hidden("average(number,int8)", "number int8", "number", rows_of(_average), fallible=True)
for _name, _sample, _root in SPREADS:
    hidden(
        f"{_name}(number,number,int8)",
        "number number int8",
        "number",
        rows_of(_variance(sample=_sample, root=_root)),
        fallible=True,
    )
