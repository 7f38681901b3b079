"""Maps from text: constructors, operators, functions and what their aggregates finish."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.errors import UndefinedFunction
from foreshore.expr.functions.function import (
    Literals,
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.records import strictly
from foreshore.structured import pairs_of, stored_map, values_of
from foreshore.types import Datum, SqlType, item_of, map_of


def _make(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return maps of keys and values that alternate; the last value of a key counts."""
    if not arrays:
        return pa.array([stored_map({}, types.result)], pa.binary())
    data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
    rows = zip(*data, strict=True)
    return pa.array(
        [stored_map(_pairs(row[::2], row[1::2]), types.result) for row in rows], pa.binary()
    )


def _pairs(keys: Any, values: Any) -> dict[str, Datum]:
    """Return the pairs, without those of a key that is NULL."""
    return {key: value for key, value in zip(keys, values, strict=True) if key is not None}


def _at(types: Signature) -> Callable[..., Any]:
    return lambda datum, key: pairs_of(datum, types.args[0]).get(key)


def _has(types: Signature) -> Callable[..., Any]:
    return lambda datum, key: key in pairs_of(datum, types.args[0])


def _has_all(types: Signature) -> Callable[..., Any]:
    def test(datum: bytes, keys: Any) -> bool:
        pairs = pairs_of(datum, types.args[0])
        return all(key is not None and key in pairs for key in keys)

    return test


def _has_any(types: Signature) -> Callable[..., Any]:
    def test(datum: bytes, keys: Any) -> bool:
        pairs = pairs_of(datum, types.args[0])
        return any(key in pairs for key in keys if key is not None)

    return test


def _contains(types: Signature) -> Callable[..., Any]:
    def contains(a: bytes, b: bytes) -> bool:
        held, wanted = pairs_of(a, types.args[0]), pairs_of(b, types.args[1])
        return all(key in held and held[key] == value for key, value in wanted.items())

    return contains


def _contained(types: Signature) -> Callable[..., Any]:
    contains = _contains(types)
    return lambda a, b: contains(b, a)


def _of_records(types: Signature, records: Any, of: SqlType) -> bytes:
    rows = [values_of(record, of) for record in records if record is not None]
    return stored_map(_pairs([r[0] for r in rows], [r[1] for r in rows]), types.result)


def _of_array(types: Signature) -> Callable[..., Any]:
    element = types.args[0].element
    assert element is not None, types
    return lambda records: _of_records(types, records, element)


def _built(types: Signature) -> Callable[..., Any]:
    of = types.args[0]
    return lambda datum: _of_records(types, values_of(datum, of), item_of(of))


def map_of_records(types: tuple[SqlType, ...], literals: Literals) -> SqlType:
    """Return the type of a map of a list's records, which are keys and values."""
    item = item_of(types[0])
    if len(item.members) != 2 or item.members[0].type.name != "text":
        raise UndefinedFunction(f"function map_build({types[0]}) does not exist")
    return map_of(item.members[1].type)


hidden("map(any)", "any", "map", _make, strict=False, variadic=True)
declare("->", "anymap text", "anyelement", strictly(_at), stem="map_at")
declare("?", "anymap text", "bool", strictly(_has), stem="map_has")
declare("?&", "anymap text[]", "bool", strictly(_has_all), stem="map_has_all")
declare("?|", "anymap text[]", "bool", strictly(_has_any), stem="map_has_any")
declare("@>", "anymap anymap", "bool", strictly(_contains), stem="map_contains")
declare("<@", "anymap anymap", "bool", strictly(_contained), stem="map_contained")
declare(
    "map_length",
    "anymap",
    "int4",
    strictly(lambda types: lambda datum: len(pairs_of(datum, types.args[0]))),
)
hidden("map_of_records(anyarray)", "anyarray", "anymap", strictly(_of_array))
declare_table(
    "unnest",
    "anymap",
    "text[]",
    strictly(lambda types: lambda datum: tuple(pairs_of(datum, types.args[0]))),
    columns="key value",
    more=(("map_at(anymap,text)", None),),
)
declare("map_build", "anylist", map_of_records, strictly(_built))
