"""Functions over numerics without a declared scale (`foreshore/numbers.py`).

Sums and differences of values that their decimals hold are computed by column, all else row by
row. A call with a numeric of a declared scale casts it; functions that have no form here take
numerics of 20 digits after the point, to which a number is cast.
"""

from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import number_roots, numbers
from foreshore.datum import to_array
from foreshore.expr.functions.function import Kernel, Outcome, Signature, declare
from foreshore.expr.functions.rows import DIVISION_BY_ZERO, Failure, WithSingle, computed, single
from foreshore.numbers import Operation, column_of, numbers_of
from foreshore.types import NUMBER_PARTS, NUMERIC_DIGITS, UNCONSTRAINED_SCALE, Datum

_TWO = "number number"
NO_REST = pa.scalar(b"", pa.binary())  # of a number that its decimal holds
_SHORT = pa.decimal128(NUMERIC_DIGITS - 1, UNCONSTRAINED_SCALE)  # sums of two fit


def are_exact(column: pa.Array) -> bool:
    """Return whether the decimals of a column of numbers are their values."""
    return bool(pc.all(pc.equal(column.field("rest"), NO_REST), skip_nulls=True).as_py())


def _arguments(types: Signature, arrays: Iterable[pa.Array]) -> Iterable[tuple[Any, ...]]:
    columns = [
        numbers_of(array) if type.name == "number" else array.to_pylist()
        for type, array in zip(types.args, arrays, strict=True)
    ]
    return zip(*columns, strict=True)


def rows_of(compute: Callable[..., Any]) -> WithSingle:
    """Return the kernel that applies `compute` to each row of numbers without NULLs."""

    def one(*values: Any) -> Any:
        try:
            return compute(*values)
        except ZeroDivisionError:
            raise Failure(DIVISION_BY_ZERO) from None

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        values, errors = computed(one, _arguments(types, arrays))
        column = column_of(values) if types.result.name == "number" else None
        if column is None:
            column = to_array(values, types.result)
        return column if errors is None else (column, errors)

    def of_data(types: Signature) -> Callable[..., Datum] | None:
        are_numbers = [type.name == "number" for type in types.args]
        if any(type.name == "numeric" for type in types.args):
            return None  # whose digits after the point are those of a column

        def value(*data: Any) -> Any:
            pairs = zip(data, are_numbers, strict=False)
            return one(*[numbers.number(each) if is_number else each for each, is_number in pairs])

        if types.result.name == "number":
            return lambda *data: shown_or_null(value(*data))
        return single(value, types.result)

    return WithSingle(kernel, of_data)


def shown_or_null(value: Decimal | None) -> str | None:
    """Return the datum of a number as columns hold it."""
    return None if value is None else numbers.shown(numbers.number_of(*numbers.parts_of(value)))


def _by_column(combine: Callable[[pa.Array, pa.Array], pa.Array], compute: Operation) -> Kernel:
    """Return the kernel of a sum or difference: of columns if they are short, else of rows."""
    by_row = rows_of(compute)

    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        if not (are_exact(a) and are_exact(b)):
            return by_row(types, a, b)
        try:
            sides = [column.field("value").cast(_SHORT) for column in (a, b)]
        except pa.ArrowInvalid:
            return by_row(types, a, b)
        scale = pc.max_element_wise(a.field("scale"), b.field("scale"))
        fields = [combine(*sides), pa.repeat(NO_REST, len(a)), scale]
        return pa.StructArray.from_arrays(fields, fields=list(NUMBER_PARTS))

    return WithSingle(kernel, by_row.one)


def _cut(rounding: str) -> Kernel:
    return rows_of(lambda value, digits=0: numbers.cut(value, digits, rounding))


def _finite_scale(scale: Callable[[Decimal], int | None]) -> Kernel:
    """Return the kernel of a number of digits, NULL of what is not finite."""
    return rows_of(lambda value: scale(value) if value.is_finite() else None)


for _names, _stem, _kernel in (
    ("+", "add", _by_column(pc.add, numbers.added)),
    ("-", "subtract", _by_column(pc.subtract, numbers.subtracted)),
    ("*", "multiply", rows_of(numbers.multiplied)),
    ("/", "divide", rows_of(numbers.divided)),
    ("% mod", "modulo", rows_of(numbers.remainder)),
    ("div", "div", rows_of(numbers.whole_quotient)),
    ("log", "log", rows_of(number_roots.log)),
    ("power pow ^", "power", rows_of(number_roots.power)),
):
    declare(_names, _TWO, "number", _kernel, stem=_stem, fallible=True)
for _names, _stem, _compute in (
    ("-", "negate", numbers.negated),
    ("+", "plus", lambda value: value),
    ("abs @", "abs", Decimal.copy_abs),
    ("sign", "sign", numbers.sign),
    ("trim_scale", "trim_scale", numbers.trimmed),
):
    declare(_names, "number", "number", rows_of(_compute), stem=_stem)
for _names, _compute in (
    ("sqrt", number_roots.sqrt),
    ("exp", number_roots.exp),
    ("ln", number_roots.ln),
    ("log log10", number_roots.log10),
):
    declare(_names, "number", "number", rows_of(_compute), fallible=True)
declare("round", "number", "number", _cut(ROUND_HALF_UP), fallible=True)
declare("round", "number int4", "number", _cut(ROUND_HALF_UP), fallible=True)
declare("trunc", "number", "number", _cut(ROUND_DOWN))
declare("trunc", "number int4", "number", _cut(ROUND_DOWN))
declare("ceil ceiling", "number", "number", _cut(ROUND_CEILING), fallible=True)
declare("floor", "number", "number", _cut(ROUND_FLOOR), fallible=True)
for _args in ("number", "numeric"):
    declare("scale", _args, "int4", _finite_scale(numbers.scale_of))
    declare("min_scale", _args, "int4", _finite_scale(numbers.least_scale))
    _two = f"{_args} {_args}"
    declare("gcd", _two, "number", rows_of(numbers.greatest_divisor), fallible=True)
    declare("lcm", _two, "number", rows_of(numbers.least_multiple), fallible=True)
declare("factorial", "int8", "number", rows_of(numbers.factorial), fallible=True)
