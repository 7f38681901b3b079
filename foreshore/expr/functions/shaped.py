"""Arrays of any shape: constructors, subscripts, functions, and casts from and to plain arrays."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.array_text import NOT_PLAIN
from foreshore.datum import from_array, to_array
from foreshore.errors import DatabaseError
from foreshore.expr.functions.arrays import contains, element_key, is_same, overlaps
from foreshore.expr.functions.combining import object_of_pairs
from foreshore.expr.functions.function import (
    Kernel,
    Literals,
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.jsonwritten import object_of_texts
from foreshore.expr.functions.rows import collect, fail
from foreshore.expr.functions.text import output_of
from foreshore.shaped import (
    EMPTY,
    LEAST,
    Shaped,
    concatenated,
    element_at,
    part_of,
    plain,
    shaped_of,
    stacked,
    stored_shaped,
    with_element,
    with_slice,
)
from foreshore.types import SqlType, array_of, item_of


def _kernel(compute: Callable[..., Any], *, keyed: bool = False, strict: bool = True) -> Kernel:
    """Return the kernel of `compute(*data)`, where arrays of any shape come and go as `Shaped`.

    If `keyed`, a function that distinguishes elements as SQL does comes first. Rows with NULLs are
    NULL if `strict`; otherwise NULLs come as None.
    """

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        item = item_of(next(t for t in types.args if t.name == "shaped"))
        columns = [_data(a, t) for a, t in zip(arrays, types.args, strict=True)]
        call = partial(compute, element_key(item)) if keyed else compute

        def whole(*row: Any) -> Any:
            found = call(*row) if strict else call(*(each for (each,) in row))
            return stored_shaped(found, types.result) if isinstance(found, Shaped) else found

        if not strict:
            columns = [[(each,) for each in column] for column in columns]
        return collect(types, whole, zip(*columns, strict=True))

    return kernel


def _data(a: pa.Array, type: SqlType) -> list[Any]:
    data = from_array(a, type)
    if type.name != "shaped":
        return data
    return [None if each is None else shaped_of(each, type) for each in data]  # type: ignore[arg-type]


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


def _slice(array: Shaped, *bounds: int) -> Shaped:
    return part_of(array, _pairs(bounds))


def _pairs(bounds: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(bounds[::2], bounds[1::2], strict=True))


def _assigned(array: Shaped | None, item: Any, *places: int | None) -> Shaped:
    return with_element(array or EMPTY, _known(places), item)


def _slice_assigned(array: Shaped | None, items: Shaped | None, *bounds: int | None) -> Shaped:
    """Return an array with other elements in a slice; NULL for these changes nothing."""
    known = _known(bounds)
    array = array or EMPTY
    return array if items is None else with_slice(array, _pairs(known), items.items)


def _known(places: Sequence[int | None]) -> list[int]:
    found = [place for place in places if place is not None]
    if len(found) < len(places):
        raise fail("22004", "array subscript in assignment must not be null")
    return found


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


def _cat(a: Shaped | None, b: Shaped | None) -> Shaped | None:
    if a is None or b is None:
        return a if b is None else b
    return concatenated(a, b)


def _append(array: Shaped | None, item: Any) -> Shaped:
    return _joined(array, lambda items: (*items, item))


def _prepend(item: Any, array: Shaped | None) -> Shaped:
    return _joined(array, lambda items: (item, *items))


def _joined(array: Shaped | None, change: Callable[..., tuple[Any, ...]]) -> Shaped:
    """Return an array of one dimension with other elements; subscripts begin as before."""
    array = array or EMPTY
    if array.dimensions > 1:
        raise fail("22000", "argument must be empty or one-dimensional array")
    items = change(array.items)
    return Shaped(items, (len(items),), array.lowest or (1,))


def _remove(key: Any, array: Shaped | None, item: Any) -> Shaped | None:
    if array is None:
        return None
    if array.dimensions > 1:
        raise fail("0A000", "removing elements from multidimensional arrays is not supported")
    left = tuple(each for each in array.items if not is_same(key, each, item))
    return Shaped(left, (len(left),), array.lowest) if left else EMPTY


def _replace(key: Any, array: Shaped | None, old: Any, new: Any) -> Shaped | None:
    if array is None:
        return None
    items = tuple(new if is_same(key, each, old) else each for each in array.items)
    return array._replace(items=items)


def _position(key: Any, array: Shaped | None, item: Any, *start: int | None) -> int | None:
    if start == (None,) and array is not None:
        raise fail("22004", "initial position must not be null")
    first = start[0] if start else None
    places = _positions(key, array, item) or ()
    return next((place for place in places if first is None or place >= first), None)


def _positions(key: Any, array: Shaped | None, item: Any) -> tuple[int, ...] | None:
    if array is None:
        return None
    if array.dimensions > 1:
        message = "searching for elements in multidimensional arrays is not supported"
        raise fail("0A000", message)
    places = enumerate(array.items, array.lowest[0] if array.items else 1)
    return tuple(place for place, each in places if is_same(key, each, item))


def _trim(array: Shaped, count: int) -> Shaped:
    length = array.lengths[0] if array.items else 0
    if not 0 <= count <= length:
        raise fail("2202E", f"number of elements to trim must be between 0 and {length}")
    return part_of(array, [(LEAST, array.lowest[0] + length - count - 1)]) if length else EMPTY


def _contains(key: Any, a: Shaped, b: Shaped) -> bool:
    return contains(key, a.items, b.items)


def _overlaps(key: Any, a: Shaped, b: Shaped) -> bool:
    return overlaps(key, a.items, b.items)


def _of_pairs(make: Callable[..., str]) -> Callable[[Shaped], str]:
    """Return the function that makes an object of an array of keys and values."""

    def compute(array: Shaped) -> str:
        if array.dimensions > 2:
            raise fail("2202E", "wrong number of array subscripts")
        if array.dimensions == 2 and array.lengths[1] != 2:
            raise fail("2202E", "array must have two columns")
        return make(array.items)

    return compute


def _subscripts(array: Shaped, dimension: int, reverse: bool = False) -> tuple[int, ...]:
    low, high = _lower(array, dimension), _upper(array, dimension)
    found = () if low is None or high is None else tuple(range(low, high + 1))
    return found[::-1] if reverse else found


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


def _reshaped(types: Signature, items: pa.Array, a: pa.Array) -> Outcome:
    """Return arrays of the shape of others, with elements of another type."""
    of, result = types.args[1], types.result
    rows = zip(from_array(items, types.args[0]), a.to_pylist(), strict=True)
    made = (
        None
        if elements is None or datum is None
        else stored_shaped(shaped_of(datum, of)._replace(items=elements), result)  # type: ignore[arg-type]
        for elements, datum in rows
    )
    return pa.array(made, pa.binary())


def _to_plain(array: Shaped) -> tuple[Any, ...]:
    if array.items and array.lowest != (1,):
        raise fail("0A000", NOT_PLAIN)
    return array.items


hidden("shaped(any)", "any", "shaped", _make, strict=False, fallible=True, variadic=True)
hidden("shaped_agg(anyarray)", "anyarray", "anyshaped", _gathered, fallible=True)
hidden(
    "shaped_subscript(any)",
    "anyshaped any",
    "any",
    _kernel(lambda array, *at: element_at(array, at)),
    variadic=True,
)
hidden(
    "shaped_slice(any)",
    "anyshaped any",
    "anyshaped",
    _kernel(_slice),
    variadic=True,
)
hidden(
    "shaped_assigned(anyshaped,anyelement,int4)",
    "anyshaped anyelement int4",
    "anyshaped",
    _kernel(_assigned, strict=False),
    strict=False,
    fallible=True,
    variadic=True,
)
hidden(
    "shaped_slice_assigned(anyshaped,anyshaped,int4)",
    "anyshaped anyshaped int4",
    "anyshaped",
    _kernel(_slice_assigned, strict=False),
    strict=False,
    fallible=True,
    variadic=True,
)
hidden("cast_to_shaped(anyarray)", "anyarray", "anyshaped", _of_plain)
hidden("reshaped(anyarray,anyshaped)", "anyarray anyshaped", "anyshaped", _reshaped)
hidden("cast_from_shaped(anyshaped)", "anyshaped", "anyarray", _kernel(_to_plain), fallible=True)
declare("array_length", "anyshaped int4", "int4", _kernel(_length))
declare("array_lower", "anyshaped int4", "int4", _kernel(_lower))
declare("array_upper", "anyshaped int4", "int4", _kernel(_upper))
declare("array_ndims", "anyshaped", "int4", _kernel(lambda array: array.dimensions or None))
declare("cardinality", "anyshaped", "int4", _kernel(lambda array: len(array.items)))
declare("array_dims", "anyshaped", "text", _kernel(_dims))
declare("array_to_string", "anyshaped text", "text", _to_string)
declare("array_to_string", "anyshaped text text", "text", _to_string, strict=False)
for _name, _make_object in (("jsonb", object_of_pairs), ("json", object_of_texts)):
    _whole = _kernel(_of_pairs(_make_object))
    declare(f"{_name}_object", "shaped<text>", _name, _whole, fallible=True)
declare("trim_array", "anyshaped int4", "anyshaped", _kernel(_trim), fallible=True)
for _name, _stem, _compute in (
    ("@>", "array_contains", _contains),
    ("<@", "array_contained", lambda key, a, b: _contains(key, b, a)),
    ("&&", "array_overlaps", _overlaps),
):
    declare(_name, "anyshaped anyshaped", "bool", _kernel(_compute, keyed=True), stem=_stem)

_ARRAY, _ITEM = "anycompatibleshaped", "anycompatible"
_NOT_STRICT: Sequence[tuple[str, str, str, Callable[..., Any], bool]] = (
    ("array_append ||", f"{_ARRAY} {_ITEM}", _ARRAY, _append, False),
    ("array_prepend ||", f"{_ITEM} {_ARRAY}", _ARRAY, _prepend, False),
    ("array_cat ||", f"{_ARRAY} {_ARRAY}", _ARRAY, _cat, False),
    ("array_remove", f"{_ARRAY} {_ITEM}", _ARRAY, _remove, True),
    ("array_replace", f"{_ARRAY} {_ITEM} {_ITEM}", _ARRAY, _replace, True),
    ("array_position", f"{_ARRAY} {_ITEM}", "int4", _position, True),
    ("array_position", f"{_ARRAY} {_ITEM} int4", "int4", _position, True),
    ("array_positions", f"{_ARRAY} {_ITEM}", "int4[]", _positions, True),
)
for _name, _args, _result, _compute, _keyed in _NOT_STRICT:
    _whole = _kernel(_compute, keyed=_keyed, strict=False)
    declare(_name, _args, _result, _whole, strict=False, fallible=True)
declare_table("unnest", "anyshaped", _array_of_items, _kernel(lambda array: array.items))
for _args in ("anyshaped int4", "anyshaped int4 bool"):
    declare_table("generate_subscripts", _args, "int4[]", _kernel(_subscripts))
hidden("shaped_items(anyshaped)", "anyshaped", "anyarray", _kernel(lambda array: array.items))
