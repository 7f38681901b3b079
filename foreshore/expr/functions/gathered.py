"""Aggregates as functions over the array of a group's rows, where no core aggregate gives them.

    string_agg(x, d) of bytea   =  bytes_joined(array_agg(row(x, d)))
    arg_max(x, y)               =  arg_max(array_agg(row(y, x)))
    variance(DISTINCT x)        =  var_samp_of(array_agg(DISTINCT x))

Records are stored as bytes that sort as they do. Of rows with the same y, arg_max and arg_min take
the least x, so that the answer does not depend on the order of rows.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.expr.columns import type_of
from foreshore.expr.functions.function import Outcome, Signature, hidden
from foreshore.expr.functions.moments import spread
from foreshore.expr.functions.number_sums import variance_of
from foreshore.expr.functions.records import strictly
from foreshore.expr.functions.rows import mapped
from foreshore.expr.functions.spreads import SPREADS
from foreshore.expr.ir import Aggregate, Call, Column, Scalar
from foreshore.structured import stored, values_of
from foreshore.types import BOOL, BYTEA, SqlType, array_of, record_of

Composition = tuple[Aggregate, Scalar]  # the core aggregate, and the value of `Column(0)`


def _gathered(
    key: str, types: Sequence[SqlType], places: Sequence[int], known: int, result: SqlType
) -> Composition:
    """Return `key` over the rows of these arguments whose argument `known` is not NULL."""
    columns = tuple(Column(place, types[place]) for place in places)
    row = record_of([f"f{at}" for at in range(len(places))], [type_of(c) for c in columns])
    condition = Call("is_not_null", (Column(known, types[known]),), BOOL)
    core = Aggregate(
        "array_agg", (Call("row(any)", columns, row),), array_of(row), filter=condition
    )
    return core, Call(key, (Column(0, core.type),), result)


def joined_bytes() -> Composition:
    """Return string_agg of bytea."""
    return _gathered("bytes_joined(anyarray)", (BYTEA, BYTEA), (0, 1), 0, BYTEA)


def argument_of_extreme(function: str, types: Sequence[SqlType]) -> Composition:
    """Return `arg_min` or `arg_max`: the first argument where the second is extreme."""
    return _gathered(f"{function}(anyarray)", types, (1, 0), 1, types[0])


def any_value(type: SqlType) -> Composition:
    """Return the least of the values, as one that does not depend on the order of rows."""
    return _gathered("least_row(anyarray)", (type,), (0,), 0, type)


def _item(types: Signature) -> SqlType:
    item = types.args[0].element
    assert item is not None, types
    return item


def _joined(types: Signature) -> Callable[[Sequence[bytes]], Any]:
    item = _item(types)

    def join(rows: Sequence[bytes]) -> Any:
        parts: list[Any] = []
        for at, row in enumerate(rows):
            value, delimiter = values_of(row, item)
            parts += [value] if at == 0 else [delimiter or b"", value]
        return b"".join(parts) if rows else None

    return join


def _of_extreme(extreme: Callable[[Iterable[bytes]], bytes]) -> Any:
    def make(types: Signature) -> Callable[[Sequence[bytes]], Any]:
        item = _item(types)
        first = record_of(("f0",), (item.members[0].type,))

        def pick(rows: Sequence[bytes]) -> Any:
            if not rows:
                return None
            keys = [stored(values_of(row, item)[:1], first) for row in rows]
            wanted = extreme(keys)
            least = min(row for row, key in zip(rows, keys, strict=True) if key == wanted)
            return values_of(least, item)[1]

        return pick

    return make


def _least(types: Signature) -> Callable[[Sequence[bytes]], Any]:
    item = _item(types)
    return lambda rows: values_of(min(rows), item)[0] if rows else None


def spread_of_distinct(name: str, type: SqlType) -> Composition:
    """Return a variance or deviation of the distinct values of floats or numbers."""
    core = Aggregate("array_agg", (Column(0, type),), array_of(type))
    key = f"{name}_of({type.name}[])"
    return core, Call(key, (Column(0, core.type),), type)


def _of_floats(*, sample: bool, root: bool) -> Callable[[Sequence[float | None]], float | None]:
    compute = spread(sample, root)

    def of(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if not all(abs(value) < float("inf") for value in known):
            return compute(float("nan"), len(known))
        exact = list(map(Fraction, known))
        moment = sum(x * x for x in exact) - sum(exact) ** 2 / max(len(exact), 1)
        try:
            return compute(float(moment), len(known))
        except OverflowError:
            return compute(float("inf"), len(known))

    return of


def _of_numbers(name: str) -> Callable[..., Outcome]:
    def kernel(types: Signature, items: pa.Array) -> Outcome:
        lists: list[Any] = from_array(items, types.args[0])
        return variance_of(name, lists)

    return kernel


hidden("bytes_joined(anyarray)", "anyarray", "bytea", strictly(_joined))
hidden("arg_max(anyarray)", "anyarray", "anyelement", strictly(_of_extreme(max)))
hidden("arg_min(anyarray)", "anyarray", "anyelement", strictly(_of_extreme(min)))
hidden("least_row(anyarray)", "anyarray", "anyelement", strictly(_least))
for _name, _sample, _root in SPREADS:
    hidden(
        f"{_name}_of(float8[])",
        "float8[]",
        "float8",
        mapped(_of_floats(sample=_sample, root=_root)),
        fallible=True,
    )
    hidden(f"{_name}_of(number[])", "number[]", "number", _of_numbers(_name), fallible=True)
