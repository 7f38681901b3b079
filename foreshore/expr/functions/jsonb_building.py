"""jsonb from SQL values: to_jsonb, and functions that build objects and arrays."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import from_array, to_array
from foreshore.errors import data_error
from foreshore.expr.functions.casting import text_of
from foreshore.expr.functions.function import Kernel, Outcome, Signature, declare, hidden
from foreshore.expr.functions.jsontext import MISSING, as_json, dumps, loads
from foreshore.shaped import nested, shaped_of
from foreshore.structured import pairs_of, values_of
from foreshore.text import format_text
from foreshore.types import STRUCTURED, SqlType, item_of

# --- from SQL values ---------------------------------------------------------------------------


def to_json(array: pa.Array, type: SqlType) -> list[Any]:
    """Return the document of to_jsonb for each value, MISSING for NULL."""
    if type.element is not None:
        items = to_json(pc.list_flatten(array), type.element)
        out: list[Any] = []
        at = 0
        for length in pc.list_value_length(array).to_pylist():
            if length is None:
                out.append(MISSING)
            else:
                out.append([None if i is MISSING else i for i in items[at : at + length]])
                at += length
        return out
    if type.name in STRUCTURED:
        return [MISSING if d is None else _structure(d, type) for d in array.to_pylist()]
    match type.name:
        case "bool":
            return [MISSING if v is None else v for v in array.to_pylist()]
        case "json" | "jsonb":
            return [MISSING if v is None else loads(v) for v in array.to_pylist()]
        case "int2" | "int4" | "int8" | "numeric" | "uint2" | "uint4" | "uint8":
            return [MISSING if t is None else Decimal(t) for t in text_of(array, type)]
        case "float4" | "float8" | "number":
            return [
                MISSING if t is None else t if t in ("NaN", "Infinity", "-Infinity") else Decimal(t)
                for t in text_of(array, type)
            ]
        case "inet":
            return [MISSING if d is None else format_text(d, type) for d in from_array(array, type)]
        case "timestamp" | "timestamptz":
            return [
                MISSING if d is None else iso_text(format_text(d, type))
                for d in from_array(array, type)
            ]
        case _:
            return [MISSING if t is None else t for t in text_of(array, type)]


def _structure(datum: bytes, type: SqlType) -> Any:
    """Return the document of a record, list or map."""

    def inner(value: Any, of: SqlType) -> Any:
        (document,) = to_json(to_array([value], of), of)
        return None if document is MISSING else document

    if type.name == "shaped":
        array = shaped_of(datum, type)
        items = tuple(inner(value, item_of(type)) for value in array.items)
        return nested(array._replace(items=items))
    if type.name == "map":
        return {k: inner(v, item_of(type)) for k, v in pairs_of(datum, type).items()}
    values = values_of(datum, type)
    if type.name == "list":
        return [inner(value, item_of(type)) for value in values]
    return {m.name: inner(v, m.type) for m, v in zip(type.members, values, strict=True)}


_WHOLE_HOURS = re.compile(r"[+-][0-9][0-9]\Z")


def iso_text(text: str) -> str:
    """Return the text of a timestamp as JSON has it: ISO 8601, with the zone's minutes."""
    if "infinity" in text:
        return text
    body, _, era = text.replace(" ", "T", 1).partition(" ")
    minutes = ":00" if _WHOLE_HOURS.search(body) else ""
    return body + minutes + (" " + era if era else "")


def _to_jsonb(types: Signature, a: pa.Array) -> Outcome:
    return pa.array([as_json(v) for v in to_json(a, types.args[0])], pa.string())


def keys_of(array: pa.Array, type: SqlType) -> list[str | None]:
    """Return values as the keys of an object."""
    texts = text_of(array, type)
    if type.name in ("timestamp", "timestamptz"):
        return [None if text is None else iso_text(text) for text in texts]
    return texts


def built_objects(
    types: Signature,
    arrays: Sequence[pa.Array],
    items_of: Callable[[pa.Array, SqlType], list[Any]],
    object_of: Callable[[Sequence[Any], Sequence[Any]], str],
    null_key: str,
) -> Outcome:
    """Return an object for each row of keys and values in turn.

    `items_of` returns the values of a column, `object_of` an object of keys and values. `null_key`
    says after "argument N" what is wrong with a key that is NULL.
    """
    rows = len(arrays[0])
    if len(arrays) % 2:
        text = data_error("22023", "argument list must have even number of elements")
        return pa.nulls(rows, pa.string()), pa.array([text] * rows)
    columns = [
        keys_of(array, type) if i % 2 == 0 else items_of(array, type)
        for i, (array, type) in enumerate(zip(arrays, types.args, strict=True))
    ]
    values: list[str | None] = []
    errors: list[str | None] = []
    for row in zip(*columns, strict=True):
        keys, items = row[::2], row[1::2]
        if None in keys:
            position = 2 * keys.index(None) + 1
            errors.append(data_error("22023", f"argument {position}{null_key}"))
            values.append(None)
        else:
            errors.append(None)
            values.append(object_of(keys, items))
    return pa.array(values, pa.string()), pa.array(errors, pa.string())


def _object_of(keys: Sequence[Any], items: Sequence[Any]) -> str:
    pairs = zip(keys, items, strict=True)
    return dumps({k: None if v is MISSING else v for k, v in pairs})


def _build_object(types: Signature, *arrays: pa.Array) -> Outcome:
    return built_objects(types, arrays, to_json, _object_of, ": key must not be null")


def _build_array(types: Signature, *arrays: pa.Array) -> Outcome:
    columns = [to_json(a, t) for a, t in zip(arrays, types.args, strict=True)]
    return pa.array(
        [dumps([None if v is MISSING else v for v in row]) for row in zip(*columns, strict=True)],
        pa.string(),
    )


def _nothing(text: str) -> Kernel:
    return lambda types: pa.array([text], pa.string())


def _of_array(types: Signature, a: pa.Array) -> Outcome:
    return pa.array(
        [
            None if v is None else "[" + ", ".join("null" if x is None else x for x in v) + "]"
            for v in a.to_pylist()
        ],
        pa.string(),
    )


declare("to_jsonb", "anyelement", "jsonb", _to_jsonb)
declare(
    "jsonb_build_object",
    *("any", "jsonb", _build_object),
    strict=False,
    fallible=True,
    variadic=True,
)
declare("jsonb_build_object", "", "jsonb", _nothing("{}"))
declare("jsonb_build_array", "any", "jsonb", _build_array, strict=False, variadic=True)
declare("jsonb_build_array", "", "jsonb", _nothing("[]"))
hidden("jsonb_of_array(jsonb[])", "jsonb[]", "jsonb", _of_array)
