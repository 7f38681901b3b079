"""Lists: constructors, subscripts, functions and what their aggregates finish.

Subscripts start at 1. Lists have no shape: the lists within one may have different lengths.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.errors import data_error
from foreshore.expr.equality import python_key
from foreshore.expr.functions.function import (
    Literals,
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.records import over_rows, strictly
from foreshore.expr.functions.rows import Failure, collect
from foreshore.structured import stored, values_of
from foreshore.types import Datum, SqlType, array_of, item_of, list_of

Items = tuple[Datum, ...]


def _make(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return lists of the arguments."""
    if not arrays:
        return pa.array([stored((), types.result)], pa.binary())
    data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
    return pa.array([stored(row, types.result) for row in zip(*data, strict=True)], pa.binary())


def _index(types: Signature) -> Callable[..., Any]:
    def index(datum: bytes, at: int) -> Datum:
        items = values_of(datum, types.args[0])
        return items[at - 1] if 1 <= at <= len(items) else None

    return index


def _slice(types: Signature) -> Callable[..., Any]:
    def part(datum: bytes, low: int, high: int = 2**62) -> bytes:
        items = values_of(datum, types.args[0])
        return stored(items[max(low, 1) - 1 : max(high, 0)], types.result)

    return part


def _append(types: Signature) -> Callable[..., Any]:
    def append(datum: bytes | None, item: Datum) -> bytes:
        return stored((*_items(datum, types.args[0]), item), types.result)

    return append


def _prepend(types: Signature) -> Callable[..., Any]:
    def prepend(item: Datum, datum: bytes | None) -> bytes:
        return stored((item, *_items(datum, types.args[1])), types.result)

    return prepend


def _items(datum: bytes | None, type: SqlType) -> Items:
    return () if datum is None else values_of(datum, type)


def _concatenate(types: Signature) -> Callable[..., Any]:
    def concatenate(a: bytes | None, b: bytes | None) -> bytes | None:
        if a is None or b is None:
            return a if b is None else b
        return a[:-1] + b  # without the end of the first

    return concatenate


def _remove(types: Signature) -> Callable[..., Any]:
    type = types.args[0]
    item_type = item_of(type)

    def key(item: Datum) -> Any:
        return None if item is None else (python_key(item, item_type),)

    def remove(datum: bytes | None, item: Datum) -> bytes | None:
        if datum is None:
            return None
        kept = [each for each in values_of(datum, type) if key(each) != key(item)]
        return stored(kept, type)

    return remove


def _layers(type: SqlType) -> int:
    """Return how many lists are within each other."""
    count = 0
    while type.name == "list":
        count, type = count + 1, item_of(type)
    return count


def _longest(types: Signature, lists: pa.Array, layers: pa.Array) -> Outcome:
    """Return the length of the longest list of a layer; layer 1 is the list itself."""
    type = types.args[0]

    def longest(datum: bytes, layer: int) -> int | None:
        if not 1 <= layer <= _layers(type):
            raise Failure(
                data_error(
                    "22023", f"invalid layer: {layer}; must use value within [1, {_layers(type)}]"
                )
            )
        found, of = [datum], type
        for _ in range(layer - 1):
            found = [x for each in found for x in values_of(each, of) if isinstance(x, bytes)]
            of = item_of(of)
        return max((len(values_of(each, of)) for each in found), default=None)

    return collect(types, longest, zip(lists.to_pylist(), layers.to_pylist(), strict=True))


def _of_array(types: Signature) -> Callable[..., Any]:
    return lambda items: stored(items, types.result)


def _unnested(types: Signature) -> Callable[..., Any]:
    return lambda datum: values_of(datum, types.args[0])


def _joined(types: Signature) -> Callable[..., Any]:
    """Concatenate the lists of an array, for list_agg."""
    return lambda lists: b"".join(each[:-1] for each in lists) + b"\x00"


def _array_of_items(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    return array_of(item_of(types[0]))


def _list_of_elements(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    element = types[0].element
    assert element is not None, types
    return list_of(element)


def _contains(types: Signature) -> Callable[..., Any]:
    def contains(a: bytes, b: bytes) -> bool:
        type = types.args[0]
        held = {python_key(x, item_of(type)) for x in values_of(a, type) if x is not None}
        wanted = values_of(b, type)
        return all(x is not None and python_key(x, item_of(type)) in held for x in wanted)

    return contains


hidden("list(any)", "any", "list", _make, strict=False, variadic=True)
declare("list_index", "anylist int8", "anyelement", strictly(_index))
hidden("list_slice(anylist,int8)", "anylist int8", "anylist", strictly(_slice))
hidden("list_slice(anylist,int8,int8)", "anylist int8 int8", "anylist", strictly(_slice))
declare(
    "list_append ||",
    "anycompatiblelist anycompatible",
    "anycompatiblelist",
    over_rows(_append),
    strict=False,
)
declare(
    "list_prepend ||",
    "anycompatible anycompatiblelist",
    "anycompatiblelist",
    over_rows(_prepend),
    strict=False,
)
declare(
    "list_cat ||",
    "anycompatiblelist anycompatiblelist",
    "anycompatiblelist",
    over_rows(_concatenate),
    strict=False,
)
declare(
    "list_remove",
    "anycompatiblelist anycompatible",
    "anycompatiblelist",
    over_rows(_remove),
    strict=False,
)
declare(
    "list_length",
    "anylist",
    "int4",
    strictly(lambda types: lambda datum: len(values_of(datum, types.args[0]))),
)
declare("list_length_max", "anylist int8", "int4", _longest, fallible=True)
declare(
    "list_n_layers",
    "anylist",
    "int4",
    over_rows(lambda types: lambda datum: _layers(types.args[0])),
    strict=False,
)
declare("@>", "anylist anylist", "bool", strictly(_contains), stem="list_contains")
declare(
    "<@",
    "anylist anylist",
    "bool",
    strictly(lambda types: lambda a, b: _contains(types)(b, a)),
    stem="list_contained",
)
declare("array_to_list", "anyarray", _list_of_elements, strictly(_of_array))
declare("list_to_array", "anylist", _array_of_items, strictly(_unnested))
hidden("lists_joined(anyarray)", "anyarray", "anylist", strictly(_joined))
declare_table("unnest", "anylist", _array_of_items, strictly(_unnested))
