r"""json: functions over documents that are kept as they were written.

    '{"b": 1, "a":  [2,3]}'::json -> 'a'        [2,3]
    to_json('{1,2}'::int[])                     [1,2]
    json_build_object('a', 1)                   {"a" : 1}

A part of a document is a part of its text. Keys keep their order and may repeat; the last counts.
A row fails where a function reads strings and one of the document cannot be text, as `"\u0000"`.
The values that are built have PostgreSQL's spacing, which differs from one function to another.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import from_array, to_array
from foreshore.errors import UndefinedFunction, data_error
from foreshore.expr.functions.casting import text_of
from foreshore.expr.functions.function import Kernel, Outcome, Signature, declare, declare_table
from foreshore.expr.functions.function import hidden as declare_hidden
from foreshore.expr.functions.jsonb_building import built_objects, iso_text, keys_of
from foreshore.expr.functions.rows import fail, mapped
from foreshore.json_text import canonical_json, check_strings, quote_json
from foreshore.shaped import shaped_of
from foreshore.structured import pairs_of, values_of
from foreshore.text import format_text
from foreshore.types import JSON, STRUCTURED, TEXT, SqlType, item_of

_READER = json.JSONDecoder(parse_int=str, parse_float=str)
_SPACE = re.compile(r"[ \t\r\n]*")
_INDEX = re.compile(r"\s*([+-]?)0*(\d{1,10})\Z", re.ASCII)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _parts(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield the members of an object, or the items of an array with the key None, as written."""
    at = _after_space(text, 0)
    is_object = text[at] == "{"
    at = _after_space(text, at + 1)
    while text[at] not in "]}":
        key = None
        if is_object:
            key, at = _READER.raw_decode(text, at)
            at = _after_space(text, _after_space(text, at) + 1)
        _, end = _READER.raw_decode(text, at)
        yield key, text[at:end]
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def _opening(text: str) -> str:
    return text[_after_space(text, 0)]


def _key(text: str, key: str) -> str | None:
    if _opening(text) != "{":
        return None
    return dict(_parts(text)).get(key)


def _element(text: str, index: int) -> str | None:
    if _opening(text) != "[":
        return None
    items = [item for _, item in _parts(text)]
    return items[index] if -len(items) <= index < len(items) else None


def _index(step: str) -> int | None:
    """Return the index that a step of a path is, of type int4, or None."""
    found = _INDEX.match(step)
    return int(found[1] + found[2]) if found is not None else None


def _path(text: str, path: Sequence[str | None]) -> str | None:
    found: str | None = text
    for step in path:
        if found is None or step is None:
            return None
        if _opening(found) != "[":
            found = _key(found, step)
        else:
            index = _index(step)
            found = None if index is None else _element(found, index)
    return found


def _as_text(part: str | None) -> str | None:
    """Return a part as the operator ->> does."""
    if part is None:
        return None
    match _opening(part):
        case '"':
            return str(json.loads(part))
        case "n":
            return None
        case _:
            return part


def _same(part: str | None) -> str | None:
    return part


def _get(step: Callable[[str, Any], str | None], show: Callable[[str | None], Any]) -> Kernel:
    return mapped(lambda text, arg: show(step(check_strings(text), arg)))


def _variadic_path(show: Callable[[str | None], Any]) -> Kernel:
    return mapped(lambda text, *path: show(_path(check_strings(text), path)))


_KINDS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


def _kind(text: str) -> str:
    return _KINDS.get(_opening(text), "number")


def _array_length(text: str) -> int:
    if _kind(text) != "array":
        what = "a non-array" if _kind(text) == "object" else "a scalar"
        raise fail("22023", f"cannot get array length of {what}")
    return sum(1 for _ in _parts(text))


def _object_keys(text: str) -> tuple[str, ...]:
    if _kind(text) != "object":
        what = "an array" if _kind(text) == "array" else "a scalar"
        raise fail("22023", f"cannot call json_object_keys on {what}")
    return tuple(str(key) for key, _ in _parts(check_strings(text)))


def _each_keys(text: str) -> tuple[str, ...]:
    if _kind(text) != "object":
        raise fail(
            "22023",
            "cannot deconstruct an array as an object"
            if _kind(text) == "array"
            else "cannot deconstruct a scalar",
        )
    keys = tuple(str(key) for key, _ in _parts(check_strings(text)))
    if len(set(keys)) < len(keys):
        raise fail("0A000", "json_each of an object with a repeated key is not supported")
    return keys


def _elements(name: str, show: Callable[[str | None], Any]) -> Callable[[str], tuple[Any, ...]]:
    def elements(text: str) -> tuple[Any, ...]:
        if _kind(text) != "array":
            what = "a non-array" if _kind(text) == "object" else "a scalar"
            raise fail("22023", f"cannot call {name} on {what}")
        if show is _as_text:
            check_strings(text)
        return tuple(show(item) for _, item in _parts(text))

    return elements


def _strip_nulls(text: str) -> str:
    match _kind(text):
        case "object":
            members = (
                f"{quote_json(str(key))}:{_strip_nulls(value)}"
                for key, value in _parts(text)
                if _kind(value) != "null"
            )
            return "{" + ",".join(members) + "}"
        case "array":
            return "[" + ",".join(_strip_nulls(item) for _, item in _parts(text)) + "]"
        case "string":
            return quote_json(str(json.loads(text)))
        case _:
            return text.strip()


# --- from SQL values ---------------------------------------------------------------------------


def written(array: pa.Array, type: SqlType) -> list[str | None]:
    """Return the document of to_json for each value, None for NULL."""
    if type.element is not None:
        items = written(pc.list_flatten(array), type.element)
        out: list[str | None] = []
        at = 0
        for length in pc.list_value_length(array).to_pylist():
            if length is None:
                out.append(None)
            else:
                inner = ("null" if item is None else item for item in items[at : at + length])
                out.append("[" + ",".join(inner) + "]")
                at += length
        return out
    if type.name in STRUCTURED:
        return [None if d is None else _structure(d, type) for d in array.to_pylist()]
    if type.name == "inet":
        data = from_array(array, type)
        return [None if d is None else quote_json(format_text(d, type)) for d in data]
    texts = text_of(array, type)
    match type.name:
        case "bool" | "json" | "jsonb" | "int2" | "int4" | "int8" | "numeric":
            return texts
        case "number":
            return [t if t is None or t[-1] not in "Ny" else f'"{t}"' for t in texts]
        case "uint2" | "uint4" | "uint8":
            return texts
        case "float4" | "float8":
            return [t if t is None or t[-1] not in "Ny" else f'"{t}"' for t in texts]
        case "timestamp" | "timestamptz":
            return [None if t is None else f'"{iso_text(t)}"' for t in texts]
        case _:
            return [None if t is None else quote_json(t) for t in texts]


def _structure(datum: bytes, type: SqlType) -> str:
    """Return the document of a record, list or map."""

    def inner(value: Any, of: SqlType) -> str:
        (document,) = written(to_array([value], of), of)
        return _or_null(document)

    if type.name == "shaped":
        texts = [inner(value, item_of(type)) for value in shaped_of(datum, type).items]
        for length in reversed(shaped_of(datum, type).lengths):
            rows = range(0, len(texts), length)
            texts = ["[" + ",".join(texts[at : at + length]) + "]" for at in rows]
        return texts[0] if texts else "[]"
    if type.name == "map":
        pairs = pairs_of(datum, type).items()
        return "{" + ",".join(f"{quote_json(k)}:{inner(v, item_of(type))}" for k, v in pairs) + "}"
    values = values_of(datum, type)
    if type.name == "list":
        return "[" + ",".join(inner(value, item_of(type)) for value in values) + "]"
    columns = zip(type.members, values, strict=True)
    return "{" + ",".join(f"{quote_json(m.name)}:{inner(v, m.type)}" for m, v in columns) + "}"


def _to_json(types: Signature, a: pa.Array) -> Outcome:
    return pa.array(written(a, types.args[0]), pa.string())


def _in_lines(text: str) -> str:
    """Return a document with each member or item of its outermost level on a line."""
    parts = [part if key is None else f"{quote_json(key)}:{part}" for key, part in _parts(text)]
    return text[0] + ",\n ".join(parts) + text[-1]


def _array_in_lines(types: Signature, a: pa.Array, pretty: pa.Array) -> Outcome:
    documents = zip(written(a, types.args[0]), pretty.to_pylist(), strict=True)
    return pa.array(
        [None if d is None else _in_lines(d) if lines else d for d, lines in documents], pa.string()
    )


def _object_of(keys: Sequence[Any], items: Sequence[Any]) -> str:
    members = (f"{quote_json(str(k))} : {_or_null(v)}" for k, v in zip(keys, items, strict=True))
    return "{" + ", ".join(members) + "}"


def _build_object(types: Signature, *arrays: pa.Array) -> Outcome:
    return built_objects(types, arrays, written, _object_of, " cannot be null")


def _of_row(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return objects of names and values in turn, written as row_to_json writes them."""
    found = [array[0].as_py() if len(array) else "" for array in arrays[::2]]
    if len(arrays) % 2 or not all(isinstance(name, str) for name in found):
        raise UndefinedFunction("a row has pairs of names and values")
    names = [f"{quote_json(name)}:" for name in found]
    columns = [written(a, t) for a, t in zip(arrays[1::2], types.args[1::2], strict=True)]
    rows = zip(*columns, strict=True)
    return pa.array(
        [
            "{" + ",".join(n + _or_null(v) for n, v in zip(names, row, strict=True)) + "}"
            for row in rows
        ],
        pa.string(),
    )


def object_of_texts(texts: Sequence[str | None]) -> str:
    """Return the json object of keys and values in turns."""
    if len(texts) % 2:
        raise fail("2202E", "array must have even number of elements")
    return _object_of_pairs(texts[::2], texts[1::2])


def _object_of_pairs(keys: Sequence[str | None], values: Sequence[str | None]) -> str:
    if len(keys) != len(values):
        raise fail("2202E", "mismatched array dimensions")
    members = []
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise fail("22004", "null value not allowed for object key")
        members.append(f"{quote_json(key)} : {'null' if value is None else quote_json(value)}")
    return "{" + ", ".join(members) + "}"


def _build_array(types: Signature, *arrays: pa.Array) -> Outcome:
    columns = [written(a, t) for a, t in zip(arrays, types.args, strict=True)]
    return pa.array(
        ["[" + ", ".join(map(_or_null, row)) + "]" for row in zip(*columns, strict=True)],
        pa.string(),
    )


def _or_null(document: str | None) -> str:
    return "null" if document is None else document


def _joined(separator: str) -> Kernel:
    """Return the kernel that makes one document of an array of documents, for json_agg."""

    def join(types: Signature, a: pa.Array) -> Outcome:
        return pa.array(
            [
                None if v is None else "[" + separator.join(map(_or_null, v)) + "]"
                for v in a.to_pylist()
            ],
            pa.string(),
        )

    return join


def _member(types: Signature, key: pa.Array, value: pa.Array) -> Outcome:
    """Return the members of json_object_agg, each as text."""
    keys, values = keys_of(key, types.args[0]), written(value, types.args[1])
    null = data_error("22023", "field name must not be null")
    return (
        pa.array(
            [
                None if k is None else f"{quote_json(k)} : {_or_null(v)}"
                for k, v in zip(keys, values, strict=True)
            ],
            pa.string(),
        ),
        pa.array([null if k is None else None for k in keys], pa.string()),
    )


def _nothing(text: str) -> Kernel:
    return lambda types: pa.array([text], pa.string())


for _show, _result, _end in ((_same, "json", ""), (_as_text, "text", "_text")):
    declare(
        "->" + (">" if _end else ""),
        "json text",
        _result,
        _get(_key, _show),
        fallible=True,
        stem=f"json_get{_end}",
    )
    declare(
        "->" + (">" if _end else ""),
        "json int4",
        _result,
        _get(_element, _show),
        fallible=True,
        stem=f"json_get{_end}",
    )
    declare(
        "#>" + (">" if _end else ""),
        "json text[]",
        _result,
        _get(_path, _show),
        fallible=True,
        stem=f"json_path{_end}",
    )
    declare(
        f"json_extract_path{_end}",
        "json text",
        _result,
        _variadic_path(_show),
        fallible=True,
        variadic=True,
    )
declare_hidden("cast(json,jsonb)", "json", "jsonb", mapped(canonical_json), fallible=True)
declare_hidden("cast(jsonb,json)", "jsonb", "json", lambda types, a: a)
declare("json_typeof", "json", "text", mapped(_kind))
declare("json_array_length", "json", "int4", mapped(_array_length), fallible=True)
declare(
    *("json_strip_nulls", "json", "json"),
    mapped(lambda text: _strip_nulls(check_strings(text))),
    fallible=True,
)
declare("to_json", "anyelement", "json", _to_json)
declare("array_to_json", "anyarray", "json", _to_json)
for _t in ("anyarray", "anyshaped"):
    declare("array_to_json", f"{_t} bool", "json", _array_in_lines)
declare_hidden("json_in_lines(json)", "json", "json", mapped(_in_lines))
declare("json_object", "text[]", "json", mapped(object_of_texts), fallible=True)
declare("json_object", "text[] text[]", "json", mapped(_object_of_pairs), fallible=True)
declare("array_to_json", "anyshaped", "json", _to_json)
declare(
    "json_build_object",
    *("any", "json", _build_object),
    strict=False,
    fallible=True,
    variadic=True,
)
declare("json_build_object", "", "json", _nothing("{}"))
declare("_json_of_row", "any", "json", _of_row, strict=False, variadic=True)
declare("json_build_array", "any", "json", _build_array, strict=False, variadic=True)
declare("json_build_array", "", "json", _nothing("[]"))
declare_hidden("json_of_array(json[])", "json[]", "json", _joined(", "))
declare_hidden("json_of_arrays(json[])", "json[]", "json", _joined(", \n "))
declare_hidden("json_member(any,any)", "any any", "text", _member, strict=False, fallible=True)
declare_hidden(
    "json_of_members(text[])",
    "text[]",
    "json",
    mapped(lambda members: "{ " + ", ".join(members) + " }"),
)
declare_table("json_object_keys", "json", "text[]", mapped(_object_keys), fallible=True)
for _end, _show, _result in (("", _same, "json[]"), ("_text", _as_text, "text[]")):
    declare_table(
        f"json_array_elements{_end}",
        "json",
        _result,
        mapped(_elements(f"json_array_elements{_end}", _show)),
        columns="value",
        fallible=True,
    )
    declare_table(
        f"json_each{_end}",
        "json",
        "text[]",
        mapped(_each_keys),
        columns="key value",
        more=((f"json_get{_end}(json,text)", TEXT if _end else JSON),),
        fallible=True,
    )
