"""One-dimensional arrays, numbered from 1, and table functions that return arrays' elements."""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import calendar
from foreshore.array_text import NOT_PLAIN
from foreshore.datum import from_array
from foreshore.errors import data_error
from foreshore.expr.equality import python_key
from foreshore.expr.functions.comparison import compare
from foreshore.expr.functions.function import (
    Kernel,
    Literals,
    One,
    Outcome,
    Renderer,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.number import rows_of
from foreshore.expr.functions.rows import WithSingle, collect, computed, fail, mapped
from foreshore.expr.functions.temporal import DAY, HIGHEST, LEAST, LOWEST, data_rows
from foreshore.expr.functions.text import output_of
from foreshore.expr.series import MAX_ROWS
from foreshore.list_items import items_of
from foreshore.numbers import shown
from foreshore.shaped import MAX_DIMENSIONS, MOST_ITEMS, Shaped, filled, stored_shaped
from foreshore.types import SqlType, array_of, arrow_type, numeric_of_scale, shaped_array


def _construct(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return arrays of the arguments, which all have the element type."""
    assert types.result.element is not None
    arrow = arrow_type(types.result)
    if not arrays:
        return pa.array([[]], arrow)
    rows, count = len(arrays[0]), len(arrays)
    stacked = pa.concat_arrays(list(arrays))
    order = np.arange(rows * count).reshape(count, rows).T.ravel()
    offsets = pa.array(np.arange(0, rows * count + 1, count, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, stacked.take(pa.array(order)), type=arrow)


def _array_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    name = dialect.type_name(types.result)
    if dialect.name == "duckdb":
        return f"CAST([{', '.join(args)}] AS {name})"
    return f"CAST(array({', '.join(args)}) AS {name})"


def _subscript(array: Any, index: int) -> Any:
    return array[index - 1] if 1 <= index <= len(array) else None


def _slice(array: Any, low: int, high: int = 2**31) -> Any:
    return tuple(array[max(low, 1) - 1 : max(high, 0)])


def element_key(element: SqlType) -> Callable[[Any], Any]:
    """Return a key that distinguishes elements as SQL does; NULL has a separate key."""

    def key(datum: Any) -> Any:
        if datum is None:
            return None
        return python_key(datum, element)

    return key


def by_elements(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of `compute(key, *data)`, where `key` distinguishes elements."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        key = element_key(next(t.element for t in types.args if t.element is not None))
        data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        return collect(types, lambda *row: compute(key, *row), zip(*data, strict=True))

    return WithSingle(kernel, _with_key(compute))


def _with_key(compute: Callable[..., Any]) -> One:
    """Return the function of single data of `compute`, which gets the elements' key first."""
    return lambda types: partial(
        compute, element_key(next(t.element for t in types.args if t.element is not None))
    )


def contains(key: Any, a: Any, b: Any) -> bool:
    """Return whether `a` has all elements of `b`."""
    have = {key(x) for x in a if x is not None}
    return all(x is not None and key(x) in have for x in b)


def overlaps(key: Any, a: Any, b: Any) -> bool:
    """Return whether `a` and `b` have an element in common."""
    have = {key(x) for x in a if x is not None}
    return any(x is not None and key(x) in have for x in b)


def _nullable(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of a function that receives NULLs as data."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        from foreshore.datum import to_array

        key = element_key(next(t.element for t in types.args if t.element is not None))
        data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        values = [compute(key, *row) for row in zip(*data, strict=True)]
        return to_array(values, types.result)

    return WithSingle(kernel, _with_key(compute))


def _append(types: Signature, array: pa.Array, item: pa.Array) -> Outcome:
    return _concatenated(types, array, _single(item))


def _prepend(types: Signature, item: pa.Array, array: pa.Array) -> Outcome:
    return _concatenated(types, _single(item), array)


def _cat(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    return _concatenated(types, a, b)


def _single(items: pa.Array) -> pa.ListArray:
    """Return arrays of one element each."""
    return pa.ListArray.from_arrays(np.arange(len(items) + 1, dtype=np.int32), items)


def _concatenated(types: Signature, a: pa.ListArray, b: pa.ListArray) -> pa.ListArray:
    """Return the elements of `a` and then of `b` for each row; NULL if both are NULL."""
    arrow, rows = arrow_type(types.result), len(a)
    in_turn = np.arange(2 * rows).reshape(2, rows).T.ravel()
    parts = pa.concat_arrays([a.cast(arrow), b.cast(arrow)]).take(pa.array(in_turn))
    offsets = pa.array(np.asarray(parts.offsets)[::2])
    nulls = pc.and_(a.is_null(), b.is_null())
    return pa.ListArray.from_arrays(offsets, parts.values, type=arrow, mask=nulls)


def is_same(key: Any, x: Any, y: Any) -> bool:
    """Return whether two elements are not distinct."""
    return (x is None) == (y is None) and (x is None or key(x) == key(y))


def _remove(key: Any, array: Any, item: Any) -> Any:
    return None if array is None else tuple(x for x in array if not is_same(key, x, item))


def _replace(key: Any, array: Any, old: Any, new: Any) -> Any:
    return None if array is None else tuple(new if is_same(key, x, old) else x for x in array)


def _position(key: Any, array: Any, item: Any, start: Any = 1) -> Any:
    if array is None:
        return None
    first = max(start or 1, 1)
    return next((i for i, x in enumerate(array, 1) if i >= first and is_same(key, x, item)), None)


def _position_from(types: Signature, array: pa.Array, item: pa.Array, start: pa.Array) -> Outcome:
    found = _nullable(_position)(types, array, item, start)
    missing = pc.and_(start.is_null(), array.is_valid())
    if not pc.any(missing).as_py():
        return found
    error = pa.scalar(data_error("22004", "initial position must not be null"))
    texts = pc.if_else(missing, error, pa.scalar(None, pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.int32()), found), texts


def _positions(key: Any, array: Any, item: Any) -> Any:
    if array is None:
        return None
    return tuple(i for i, x in enumerate(array, 1) if is_same(key, x, item))


def _length(types: Signature, a: pa.Array, b: pa.Array | None = None) -> Outcome:
    lengths = pc.list_value_length(a).cast(pa.int32())
    if b is None:
        return lengths
    fits = pc.and_(pc.equal(b, 1), pc.greater(lengths, 0)).fill_null(False)
    return pc.if_else(fits, lengths, pa.scalar(None, pa.int32()))


def _lower(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    fits = pc.and_(pc.equal(b, 1), pc.greater(pc.list_value_length(a), 0)).fill_null(False)
    return pc.if_else(fits, pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))


def _dimensions(types: Signature, a: pa.Array) -> Outcome:
    some = pc.greater(pc.list_value_length(a), 0).fill_null(False)
    return pc.if_else(some, pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))


def _dimensions_text(types: Signature, a: pa.Array) -> Outcome:
    counts = pc.list_value_length(a).to_pylist()
    return pa.array([f"[1:{n}]" if n else None for n in counts], pa.string())


def _trim(array: Any, count: int) -> Any:
    if not 0 <= count <= len(array):
        raise fail("2202E", f"number of elements to trim must be between 0 and {len(array)}")
    return array[: len(array) - count]


def _fill(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return arrays of one value; of one dimension whose subscripts start at 1."""
    data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
    # The value may be NULL. Kernels fail for sizes that are NULL.
    rows = ([(value,), *((size,) for size in sizes)] for value, *sizes in zip(*data, strict=True))
    if types.result.name == "shaped":
        return collect(types, lambda *row: stored_shaped(_shaped(*row), types.result), rows)
    return collect(types, _filled, rows)


def _fill_type(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    """Return the type of array_fill: with a shape if constants tell of several dimensions."""
    sizes, *lowest = (literals or ())[1:]
    if isinstance(sizes, tuple) and (len(sizes) > 1 or (lowest and lowest[0] != (1,))):
        return shaped_array(types[0])
    return array_of(types[0])


def _known_sizes(sizes: Any, lowest: Any) -> tuple[Any, Any]:
    """Return the dimensions and lower bounds, each given as a tuple of one value."""
    if None in sizes or (lowest is not None and None in lowest):
        raise fail("22004", "dimension array or low bound array cannot be null")
    return sizes[0], (1,) * len(sizes[0]) if lowest is None else lowest[0]


def _shaped(value: Any, sizes: Any, lowest: Any = None) -> Shaped:
    sizes, lowest = _known_sizes(sizes, lowest)
    if None in sizes or None in lowest:
        raise fail("22004", "dimension values cannot be null")
    if len(lowest) != len(sizes):
        raise fail("2202E", "wrong number of array subscripts")
    if len(sizes) > MAX_DIMENSIONS:
        raise fail(
            "54000",
            f"number of array dimensions ({len(sizes)}) exceeds the maximum allowed "
            f"({MAX_DIMENSIONS})",
        )
    if any(n < 0 for n in sizes):
        raise fail("54000", f"array size exceeds the maximum allowed ({2**27 - 1})")
    _too_many(prod(sizes))
    return filled(value[0], sizes, lowest)


def _filled(value: Any, sizes: Any, lowest: Any = None) -> Any:
    sizes, lowest = _known_sizes(sizes, lowest)
    if None in sizes or None in lowest:
        raise fail("22004", "dimension values cannot be null")
    if len(sizes) > 1:
        raise fail("0A000", NOT_PLAIN)
    if sizes and len(lowest) != len(sizes):
        raise fail("2202E", "wrong number of array subscripts")
    if any(n < 0 for n in sizes):
        raise fail("54000", f"array size exceeds the maximum allowed ({2**27 - 1})")
    if any(n > 0 for n in sizes) and tuple(lowest) != (1,):
        raise fail("0A000", NOT_PLAIN)
    if not sizes:
        return ()
    _too_many(sizes[0])
    return value * sizes[0]


def _to_string(types: Signature, a: pa.Array, separator: pa.Array, *null: pa.Array) -> Outcome:
    element = types.args[0].element
    assert element is not None
    items = output_of(items_of(a), element)
    nulls = null[0].to_pylist() if null else [None] * len(a)
    ends, valid = a.offsets.to_pylist(), a.is_valid().to_pylist()
    out: list[str | None] = []
    for i, by in enumerate(separator.to_pylist()):
        if not valid[i] or by is None:
            out.append(None)
            continue
        of_row = items[ends[i] - ends[0] : ends[i + 1] - ends[0]]
        parts = [nulls[i] if t is None else t for t in of_row]
        out.append(by.join(p for p in parts if p is not None))
    return pa.array(out, pa.string())


def _split(types: Signature, a: pa.Array, separator: pa.Array, *null: pa.Array) -> Outcome:
    nulls = null[0].to_pylist() if null else [None] * len(a)
    out: list[list[str | None] | None] = []
    for text, by, empty in zip(a.to_pylist(), separator.to_pylist(), nulls, strict=True):
        if text is None:
            out.append(None)
            continue
        parts: list[str]
        if by is None:
            parts = list(text)
        elif not text:
            parts = []
        else:
            parts = text.split(by) if by else [text]
        out.append([None if empty is not None and p == empty else p for p in parts])
    return pa.array(out, pa.list_(pa.string()))


def _same_array(types: Signature, a: pa.Array) -> Outcome:
    return a


# --- ANY and ALL -------------------------------------------------------------------------------


def _quantified(kind: str, every: bool) -> Kernel:
    def kernel(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
        element = types.args[1].element
        assert element is not None
        lengths = pc.list_value_length(b).fill_null(0).to_numpy(zero_copy_only=False)
        parents = np.repeat(np.arange(len(b)), lengths)
        left = a.take(pa.array(parents))
        found = compare(kind, (types.args[0], element), left, pc.list_flatten(b))
        decided = found.fill_null(every).to_numpy(zero_copy_only=False) != every
        unknown = found.is_null().to_numpy(zero_copy_only=False)
        some = np.bincount(parents[decided], minlength=len(b)) > 0
        maybe = np.bincount(parents[unknown], minlength=len(b)) > 0
        values = some if not every else ~some
        nothing = ~some & maybe
        # Over no elements the answer is known even for a NULL operand.
        nothing |= b.is_null().to_numpy(zero_copy_only=False)
        return pa.array(values, pa.bool_(), mask=nothing)

    return kernel


# --- rows --------------------------------------------------------------------------------------


def _too_many(count: int) -> None:
    if count > MAX_ROWS:
        raise fail("54000", f"a series of more than {MAX_ROWS} rows is not supported")


def _series(first: int, last: int, step: int = 1) -> range:
    if step == 0:
        raise fail("22023", "step size cannot equal zero")
    _too_many((last - first) // step + 1)
    return range(first, last + (1 if step > 0 else -1), step)


def _integers(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return series of integers without creating Python objects."""
    rows = zip(*(array.to_pylist() for array in arrays), strict=True)
    series, errors = computed(_series, rows)
    element = arrow_type(types.result).value_type
    values = [_numbers(each).astype(element.to_pandas_dtype()) for each in series if each]
    offsets = np.cumsum([0, *(len(each or ()) for each in series)])
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(np.concatenate(values) if values else [], element),
        mask=pa.array([each is None for each in series], pa.bool_()),
    )
    return lists if errors is None else (lists, errors)


def _numbers(series: range) -> Any:
    """Return the numbers of `series`, none of which exceeds 64 bits."""
    return np.arange(len(series), dtype=np.int64) * series.step + series.start


def _decimals(first: Decimal, last: Decimal, step: Decimal = Decimal(1)) -> tuple[str, ...]:
    if step == 0:
        raise fail("22023", "step size cannot equal zero")
    if first != last and (last > first) != (step > 0):
        return ()
    digits = (
        max(each.adjusted() for each in (first, last, step))
        + 2
        - min(int(each.as_tuple().exponent) for each in (first, last, step))
    )
    exact = Context(prec=max(digits, 1) + len(str(MAX_ROWS)))
    distance = exact.subtract(last, first)
    if distance and distance.adjusted() - step.adjusted() > len(str(MAX_ROWS)):
        _too_many(MAX_ROWS + 1)
    count = int(exact.divide_int(distance, step)) + 1
    _too_many(count)
    return tuple(format(exact.fma(step, i, first), "f") for i in range(count))


def _number_series(first: Decimal, last: Decimal, step: Decimal = Decimal(1)) -> tuple[str, ...]:
    """Return the texts of a series of numbers: the first as it is, then sums."""
    names = ("start", "stop", "step size")
    for what, value in zip(names, (first, last, step), strict=True):
        if not value.is_finite():
            word = "NaN" if value.is_nan() else "infinity"
            message = f"{what} value cannot be {word}".replace("size value", "size")
            raise fail("22023", message)
    texts = _decimals(first, last, step)
    return (shown(first), *texts[1:]) if texts else ()


def series_type(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    """Return the array type of a series of numerics."""
    scale = max(t.scale or 0 for t in types)
    return array_of(numeric_of_scale(scale, trim=any(t.trim for t in types)))


def moments(
    first: int, last: int, step: tuple[int, int, int], next: Callable[..., int] | None = None
) -> tuple[int, ...]:
    """Return the series of timestamps; `next` is `later`, or its equivalent in a zone."""
    after = later if next is None else next
    months, days, micros = step
    size = (months * 30 + days) * DAY + micros
    if size == 0:
        raise fail("22023", "step size cannot equal zero")
    if first in (LOWEST, HIGHEST) or last in (LOWEST, HIGHEST):
        raise fail("22008", "timestamp out of range")
    # An upper bound of a step; a clock change may add up to a day.
    longest = (abs(months) * 31 + abs(days)) * DAY + abs(micros) + (DAY if months or days else 0)
    if (last - first > 0) == (size > 0):
        _too_many(abs(last - first) // longest)
    out: list[int] = []
    at = first
    while at <= last if size > 0 else at >= last:
        out.append(at)
        if len(out) > MAX_ROWS:
            _too_many(len(out))
        at = after(at, months, days, micros)
        if at < LEAST:
            raise fail("22008", "timestamp out of range")
    return tuple(out)


def later(at: int, months: int, days: int, micros: int) -> int:
    """Return the timestamp months, days and microseconds later."""
    whole, rest = divmod(at, DAY)
    if months:
        year, month, day = calendar.civil_from_days(whole)
        total = year * 12 + month - 1 + months
        year, month = total // 12, total % 12 + 1
        day = min(day, calendar.days_in_month(year, month))
        whole = calendar.days_from_civil(year, month, day)
    return (whole + days) * DAY + rest + micros


def _subscripts(array: Any, dimension: int, reverse: bool = False) -> tuple[int, ...]:
    found = tuple(range(1, len(array) + 1)) if dimension == 1 else ()
    return found[::-1] if reverse else found


def _first_of_list(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    return types[0]


hidden(
    "array",
    "anyelement",
    "anyarray",
    _construct,
    strict=False,
    variadic=True,
    duckdb=_array_sql,
    spark=_array_sql,
)
declare("array_subscript", "anyarray int4", "anyelement", data_rows(_subscript))
declare("array_slice", "anyarray int4", "anyarray", data_rows(_slice))
declare("array_slice", "anyarray int4 int4", "anyarray", data_rows(_slice))
declare("array_length", "anyarray int4", "int4", _length)
declare("array_upper", "anyarray int4", "int4", _length)
declare("array_lower", "anyarray int4", "int4", _lower)
declare("array_ndims", "anyarray", "int4", _dimensions)
declare("cardinality", "anyarray", "int4", _length)
declare("array_dims", "anyarray", "text", _dimensions_text)
declare("trim_array", "anyarray int4", "anyarray", data_rows(_trim), fallible=True)
for _args in ("anyelement int4[]", "anyelement int4[] int4[]"):
    declare("array_fill", _args, _fill_type, _fill, strict=False, fallible=True)
declare("@>", "anyarray anyarray", "bool", by_elements(contains), stem="array_contains")
declare(
    "<@",
    "anyarray anyarray",
    "bool",
    by_elements(lambda key, a, b: contains(key, b, a)),
    stem="array_contained",
)
declare("&&", "anyarray anyarray", "bool", by_elements(overlaps), stem="array_overlaps")
declare(
    "array_append ||",
    "anycompatiblearray anycompatible",
    "anycompatiblearray",
    _append,
    strict=False,
)
declare(
    "array_prepend ||",
    "anycompatible anycompatiblearray",
    "anycompatiblearray",
    _prepend,
    strict=False,
)
declare(
    "array_cat ||",
    "anycompatiblearray anycompatiblearray",
    "anycompatiblearray",
    _cat,
    strict=False,
)
declare(
    "array_remove",
    "anycompatiblearray anycompatible",
    "anycompatiblearray",
    _nullable(_remove),
    strict=False,
)
declare(
    "array_replace",
    "anycompatiblearray anycompatible anycompatible",
    "anycompatiblearray",
    _nullable(_replace),
    strict=False,
)
declare(
    "array_position", "anycompatiblearray anycompatible", "int4", _nullable(_position), strict=False
)
declare(
    "array_position",
    "anycompatiblearray anycompatible int4",
    "int4",
    _position_from,
    strict=False,
    fallible=True,
)
declare(
    "array_positions",
    "anycompatiblearray anycompatible",
    "int4[]",
    _nullable(_positions),
    strict=False,
)
declare("array_to_string", "anyarray text", "text", _to_string)
declare("array_to_string", "anyarray text text", "text", _to_string, strict=False)
declare("string_to_array", "text text", "text[]", _split, strict=False)
declare("string_to_array", "text text text", "text[]", _split, strict=False)

for _kind in ("eq", "ne", "lt", "le", "gt", "ge"):
    hidden(f"{_kind}_any", "anyelement anyarray", "bool", _quantified(_kind, False), strict=False)
    hidden(f"{_kind}_all", "anyelement anyarray", "bool", _quantified(_kind, True), strict=False)

for _t in ("int4", "int8"):
    declare_table("generate_series", f"{_t} {_t}", f"{_t}[]", _integers, fallible=True)
    declare_table("generate_series", f"{_t} {_t} {_t}", f"{_t}[]", _integers, fallible=True)
declare_table("generate_series", "numeric numeric", series_type, mapped(_decimals), fallible=True)
declare_table(
    "generate_series", "numeric numeric numeric", series_type, mapped(_decimals), fallible=True
)
for _types in ("number number", "number number number"):
    declare_table("generate_series", _types, "number[]", rows_of(_number_series), fallible=True)
for _t in ("timestamp", "timestamptz"):
    declare_table(
        "generate_series", f"{_t} {_t} interval", f"{_t}[]", data_rows(moments), fallible=True
    )
declare_table("unnest", "anyarray", _first_of_list, _same_array)
declare_table("generate_subscripts", "anyarray int4", "int4[]", data_rows(_subscripts))
declare_table("generate_subscripts", "anyarray int4 bool", "int4[]", data_rows(_subscripts))
declare_table(
    "_pg_expandarray",
    "anyarray",
    "int4[]",
    data_rows(lambda array: tuple(range(1, len(array) + 1))),
    columns="x n",
    more=(("array_subscript(anyarray,int4)", None),),
    item_last=True,
)
declare_table("string_to_table", "text text", "text[]", _split, strict=False)
declare_table("string_to_table", "text text text", "text[]", _split, strict=False)


def _with_item(row: tuple[Any, ...]) -> tuple[Any, ...]:
    items, place, item = row
    if place is None:
        raise fail("22004", "array subscript in assignment must not be null")
    items = items or ()
    if place < 1 or (not items and place != 1):
        raise fail("0A000", NOT_PLAIN)
    if place > MOST_ITEMS:
        raise fail("54000", "array size exceeds the maximum allowed (134217727)")
    gap = (None,) * (place - 1 - len(items))
    return (*items[: place - 1], *gap, item, *items[place:])


def _assigned(types: Signature, *arrays: pa.Array) -> Outcome:
    data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
    return collect(types, _with_item, ((row,) for row in zip(*data, strict=True)))


hidden(
    "array_assigned(anyarray,int4,anyelement)",
    *("anyarray int4 anyelement", "anyarray", _assigned),
    strict=False,
    fallible=True,
)
