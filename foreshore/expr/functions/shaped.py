"""Arrays of any shape: constructors, subscripts, functions, and casts from and to plain arrays."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.errors import DatabaseError, data_error
from foreshore.expr.datum import from_array, to_array
from foreshore.expr.functions.function import (
    Kernel,
    Literals,
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.rows import Failure, collect, fail
from foreshore.expr.functions.text import output_of
from foreshore.shaped import (
    EMPTY,
    Shaped,
    concatenated,
    element_at,
    part_of,
    plain,
    shaped_of,
    stacked,
    stored_shaped,
)
from foreshore.types import SqlType, array_of, item_of


def _kernel(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of `compute(array, *data)` of rows without NULLs, the first an array."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        of = types.args[0]
        return collect(
            types,
            lambda datum, *more: compute(shaped_of(datum, of), *more),
            zip(*data, strict=True),
        )

    return kernel


def _make(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return the arrays of the arguments, which are arrays of any shape."""
    data = [a.to_pylist() for a in arrays]
    of = types.result

    def whole(*row: Any) -> bytes:
        found = [EMPTY if each is None else shaped_of(each, of) for (each,) in row]
        return stored_shaped(stacked(found), of)

    rows = (tuple((each,) for each in row) for row in zip(*data, strict=True))
    return collect(types, whole, rows)


def _gathered(types: Signature, a: pa.Array) -> Outcome:
    """Return the arrays of the arrays of groups, for array_agg."""

    def whole(arrays: Any) -> bytes:
        if None in arrays:
            raise fail("22004", "cannot accumulate null arrays")
        found = [shaped_of(each, types.result) for each in arrays]
        if any(not each.items for each in found):
            raise fail("2202E", "cannot accumulate empty arrays")
        try:
            return stored_shaped(stacked(found), types.result)
        except DatabaseError:
            message = "cannot accumulate arrays of different dimensionality"
            raise fail("2202E", message) from None

    return collect(types, whole, ((each,) for each in a.to_pylist()))


def _subscript(types: Signature, a: pa.Array, *places: pa.Array) -> Outcome:
    return _kernel(lambda array, *at: element_at(array, at))(types, a, *places)


def _slice(types: Signature, a: pa.Array, *bounds: pa.Array) -> Outcome:
    """Return slices; bounds come in pairs, NULL where one is left out."""
    data = [b.to_pylist() for b in bounds]
    out = []
    for i, datum in enumerate(a.to_pylist()):
        row = [column[i] for column in data]
        pairs = list(zip(row[::2], row[1::2], strict=True))
        of = types.result
        found = None if datum is None else stored_shaped(part_of(shaped_of(datum, of), pairs), of)
        out.append(found)
    return pa.array(out, pa.binary())


def _length(array: Shaped, dimension: int) -> int | None:
    return array.lengths[dimension - 1] if 1 <= dimension <= array.dimensions else None


def _lower(array: Shaped, dimension: int) -> int | None:
    return array.lowest[dimension - 1] if 1 <= dimension <= array.dimensions else None


def _upper(array: Shaped, dimension: int) -> int | None:
    length, low = _length(array, dimension), _lower(array, dimension)
    return None if length is None or low is None else low + length - 1


def _dims(array: Shaped) -> str | None:
    pairs = zip(array.lowest, array.lengths, strict=True)
    return "".join(f"[{low}:{low + length - 1}]" for low, length in pairs) or None


def _cat(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    of = types.result

    def both(x: Any, y: Any) -> bytes | None:
        if x[0] is None or y[0] is None:
            found: bytes | None = x[0] if y[0] is None else y[0]
            return found
        return stored_shaped(concatenated(shaped_of(x[0], of), shaped_of(y[0], of)), of)

    rows = zip(((x,) for x in a.to_pylist()), ((y,) for y in b.to_pylist()), strict=True)
    return collect(types, both, rows)


def _to_string(types: Signature, a: pa.Array, by: pa.Array, *null: pa.Array) -> Outcome:
    of = types.args[0]
    nulls = null[0].to_pylist() if null else [None] * len(a)
    out: list[str | None] = []
    for datum, separator, missing in zip(a.to_pylist(), by.to_pylist(), nulls, strict=True):
        if datum is None or separator is None:
            out.append(None)
            continue
        items = shaped_of(datum, of).items
        texts = output_of(to_array(items, item_of(of)), item_of(of))
        shown = (missing if text is None else text for text in texts)
        out.append(separator.join(text for text in shown if text is not None))
    return pa.array(out, pa.string())


def _array_of_items(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    return array_of(item_of(types[0]))


def _of_plain(types: Signature, a: pa.Array) -> Outcome:
    """Return plain arrays as arrays with a shape, of the same elements."""
    of = types.result
    data = from_array(a, types.args[0])
    return pa.array(
        [None if items is None else stored_shaped(plain(items), of) for items in data],  # type: ignore[arg-type]
        pa.binary(),
    )


def _to_plain(types: Signature, a: pa.Array) -> Outcome:
    def items(array: Shaped) -> Any:
        if array.dimensions > 1:
            raise Failure(
                data_error(
                    "0A000", "arrays of more than one dimension are not supported in plain arrays"
                )
            )
        if array.items and array.lowest != (1,):
            raise Failure(
                data_error("0A000", "arrays whose subscripts do not start at 1 are not supported")
            )
        return array.items

    return _kernel(items)(types, a)


hidden("shaped(any)", "any", "shaped", _make, strict=False, fallible=True, variadic=True)
hidden("shaped_agg(anyarray)", "anyarray", "anyshaped", _gathered, fallible=True)
hidden("shaped_subscript(any)", "anyshaped any", "any", _subscript, variadic=True)
hidden("shaped_slice(any)", "anyshaped any", "anyshaped", _slice, strict=False, variadic=True)
hidden("cast_to_shaped(anyarray)", "anyarray", "anyshaped", _of_plain)
hidden("cast_from_shaped(anyshaped)", "anyshaped", "anyarray", _to_plain, fallible=True)
declare("array_length", "anyshaped int4", "int4", _kernel(_length))
declare("array_lower", "anyshaped int4", "int4", _kernel(_lower))
declare("array_upper", "anyshaped int4", "int4", _kernel(_upper))
declare("array_ndims", "anyshaped", "int4", _kernel(lambda array: array.dimensions or None))
declare("cardinality", "anyshaped", "int4", _kernel(lambda array: len(array.items)))
declare("array_dims", "anyshaped", "text", _kernel(_dims))
declare("array_to_string", "anyshaped text", "text", _to_string)
declare("array_to_string", "anyshaped text text", "text", _to_string, strict=False)
declare("array_cat ||", "anyshaped anyshaped", "anyshaped", _cat, strict=False, fallible=True)
declare_table("unnest", "anyshaped", _array_of_items, _kernel(lambda array: array.items))
declare_table(
    "generate_subscripts",
    "anyshaped int4",
    "int4[]",
    _kernel(
        lambda array, dimension: tuple(
            range(_lower(array, dimension) or 1, (_upper(array, dimension) or 0) + 1)
        )
    ),
)
hidden("shaped_items(anyshaped)", "anyshaped", "anyarray", _kernel(lambda array: array.items))
