"""jsonb: operators and functions over documents kept as canonical text."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import data_error
from foreshore.expr.datum import from_array
from foreshore.expr.functions.casting import limit_of, text_of
from foreshore.expr.functions.function import (
    Kernel,
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.jsontext import dumps, json_order_bytes, loads, stored_keys
from foreshore.expr.functions.rows import Failure, fail, mapped, out_of_range
from foreshore.text import format_text
from foreshore.types import JSONB, TEXT, SqlType, array_of

MISSING = object()
MAX_NUMBERS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}


def _key(document: Any, key: str) -> Any:
    return document.get(key, MISSING) if isinstance(document, dict) else MISSING


def _element(document: Any, index: int) -> Any:
    if isinstance(document, dict):
        return MISSING
    if not isinstance(document, list):
        document = [document]  # a scalar is processed as an array of one
    if index < 0:
        index += len(document)
    return document[index] if 0 <= index < len(document) else MISSING


def _as_json(value: Any) -> str | None:
    return None if value is MISSING else dumps(value)


def as_text(value: Any) -> str | None:
    """Return a value as the operator ->> does."""
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else dumps(value)


def _path(document: Any, path: Any) -> Any:
    for step in path:
        if step is None:
            return MISSING
        if isinstance(document, list):
            index = _index(step)
            document = MISSING if index is None else _element(document, index)
        else:
            document = _key(document, step)
        if document is MISSING:
            return MISSING
    return document


def _index(step: str) -> int | None:
    stripped = step.strip()
    body = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    if not (body.isdigit() and body.isascii()):
        return None
    if len(body.lstrip("0")) > 10:
        return None
    value = int(stripped[: len(stripped) - len(body)] + (body.lstrip("0") or "0"))
    return value if -(2**31) <= value < 2**31 else None


def _get(step: Callable[[Any, Any], Any], show: Callable[[Any], str | None]) -> Kernel:
    return mapped(lambda text, arg: show(step(loads(text), arg)))


def _contains(a: Any, b: Any, *, top: bool = False) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return all(k in a and _contains(a[k], v) for k, v in b.items())
    if isinstance(a, list) and isinstance(b, list):
        return all(any(_contains_element(x, y) for x in a) for y in b)
    if top and isinstance(a, list) and not isinstance(b, list | dict):
        return any(not isinstance(x, list | dict) and _same_scalar(x, b) for x in a)
    if isinstance(a, dict | list) or isinstance(b, dict | list):
        return False
    return _same_scalar(a, b)


def _contains_element(x: Any, y: Any) -> bool:
    if isinstance(y, list | dict):
        return type(x) is type(y) and _contains(x, y)
    return not isinstance(x, list | dict) and _same_scalar(x, y)


def _same_scalar(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _exists(text: str, key: str) -> bool:
    document = loads(text)
    if isinstance(document, dict):
        return key in document
    if isinstance(document, list):
        return any(isinstance(x, str) and x == key for x in document)
    return isinstance(document, str) and document == key


def _concatenate(a: str, b: str) -> str:
    x, y = loads(a), loads(b)
    if isinstance(x, dict) and isinstance(y, dict):
        return dumps({**x, **y})
    left = x if isinstance(x, list) else [x]
    right = y if isinstance(y, list) else [y]
    return dumps(left + right)


def _delete_key(text: str, key: str) -> str:
    document = loads(text)
    if isinstance(document, dict):
        document.pop(key, None)
    elif isinstance(document, list):
        document = [x for x in document if not (isinstance(x, str) and x == key)]
    else:
        raise fail("22023", "cannot delete from scalar")
    return dumps(document)


def _delete_keys(text: str, keys: Any) -> str:
    document = loads(text)
    if not isinstance(document, dict | list):
        raise fail("22023", "cannot delete from scalar")
    names = {k for k in keys if k is not None}
    if isinstance(document, dict):
        return dumps({k: v for k, v in document.items() if k not in names})
    return dumps([x for x in document if not (isinstance(x, str) and x in names)])


def _delete_index(text: str, index: int) -> str:
    document = loads(text)
    if isinstance(document, dict):
        raise fail("22023", "cannot delete from object using integer index")
    if not isinstance(document, list):
        raise fail("22023", "cannot delete from scalar")
    at = index + len(document) if index < 0 else index
    if 0 <= at < len(document):
        del document[at]
    return dumps(document)


def _delete_path(text: str, path: Any) -> str:
    document = loads(text)
    if not isinstance(document, dict | list):
        raise fail("22023", "cannot delete path in scalar")
    if not path or not document:
        return dumps(document)
    return dumps(_changed(document, list(path), 0, None, delete=True))


def _changed(
    node: Any,
    path: list[Any],
    level: int,
    new: Any,
    *,
    delete: bool = False,
    create: bool = True,
    insert: bool = False,
    after: bool = False,
) -> Any:
    """Return `node` with the value at `path` replaced, inserted or removed."""
    options = {"delete": delete, "create": create, "insert": insert, "after": after}
    step, last = path[level], level == len(path) - 1
    if step is None:
        raise fail("22004", f"path element at position {level + 1} is null")
    if isinstance(node, dict):
        if last:
            if delete:
                return {k: v for k, v in node.items() if k != step}
            if insert and step in node:
                raise fail("22023", "cannot replace existing key")
            if step in node or create:
                return {**node, step: new}
            return node
        if step in node:
            return {**node, step: _changed(node[step], path, level + 1, new, **options)}
        return node
    if isinstance(node, list):
        index = _index(step)
        if index is None:
            raise fail("22P02", f'path element at position {level + 1} is not an integer: "{step}"')
        at = index + len(node) if index < 0 else index
        if last:
            if delete:
                return node[:at] + node[at + 1 :] if 0 <= at < len(node) else node
            if insert:
                at = min(max(at, 0), len(node)) + (1 if after and 0 <= at < len(node) else 0)
                return [*node[:at], new, *node[at:]]
            if 0 <= at < len(node):
                return [*node[:at], new, *node[at + 1 :]]
            if not create:
                return node
            return [new, *node] if at < 0 else [*node, new]
        if 0 <= at < len(node):
            return [
                *node[:at],
                _changed(node[at], path, level + 1, new, **options),
                *node[at + 1 :],
            ]
        return node
    return node


def _set(text: str, path: Any, new: str, create: bool = True) -> str:
    document = loads(text)
    if not isinstance(document, dict | list):
        raise fail("22023", "cannot set path in scalar")
    if not path:
        return dumps(document)
    return dumps(_changed(document, list(path), 0, loads(new), create=create))


def _insert(text: str, path: Any, new: str, after: bool = False) -> str:
    document = loads(text)
    if not isinstance(document, dict | list):
        raise fail("22023", "cannot set path in scalar")
    if not path:
        return dumps(document)
    return dumps(_changed(document, list(path), 0, loads(new), insert=True, after=after))


def _typeof(text: str) -> str:
    match loads(text):
        case None:
            return "null"
        case bool():
            return "boolean"
        case Decimal():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _array_length(text: str) -> int:
    document = loads(text)
    if isinstance(document, list):
        return len(document)
    if isinstance(document, dict):
        raise fail("22023", "cannot get array length of a non-array")
    raise fail("22023", "cannot get array length of a scalar")


def _strip_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _strip_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_strip_nulls(v) for v in value]
    return value


def _pretty(value: Any, indent: int = 0) -> str:
    inner, outer = " " * 4 * (indent + 1), " " * 4 * indent
    if isinstance(value, dict):
        if not value:
            return "{\n" + outer + "}"
        lines = [
            f"{inner}{dumps(key)}: {_pretty(value[key], indent + 1)}" for key in stored_keys(value)
        ]
        return "{\n" + ",\n".join(lines) + "\n" + outer + "}"
    if isinstance(value, list):
        if not value:
            return "[\n" + outer + "]"
        return (
            "[\n" + ",\n".join(inner + _pretty(v, indent + 1) for v in value) + "\n" + outer + "]"
        )
    return dumps(value)


def _object_keys(text: str) -> tuple[str, ...]:
    document = loads(text)
    if isinstance(document, dict):
        return tuple(stored_keys(document))
    kind = "an array" if isinstance(document, list) else "a scalar"
    raise fail("22023", f"cannot call jsonb_object_keys on {kind}")


def _each_keys(name: str) -> Callable[[str], tuple[str, ...]]:
    def keys(text: str) -> tuple[str, ...]:
        document = loads(text)
        if not isinstance(document, dict):
            raise fail("22023", f"cannot call {name} on a non-object")
        return tuple(stored_keys(document))

    return keys


def _elements(name: str, show: Callable[[Any], str | None]) -> Callable[[str], tuple[Any, ...]]:
    def elements(text: str) -> tuple[Any, ...]:
        document = loads(text)
        if isinstance(document, list):
            return tuple(map(show, document))
        kind = "an object" if isinstance(document, dict) else "a scalar"
        raise fail("22023", f"cannot extract elements from {kind}")

    return elements


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
    match type.name:
        case "bool":
            return [MISSING if v is None else v for v in array.to_pylist()]
        case "json" | "jsonb":
            return [MISSING if v is None else loads(v) for v in array.to_pylist()]
        case "int2" | "int4" | "int8" | "numeric":
            return [MISSING if t is None else Decimal(t) for t in text_of(array, type)]
        case "float4" | "float8":
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


_WHOLE_HOURS = re.compile(r"[+-]\d\d\Z")


def iso_text(text: str) -> str:
    """Return the text of a timestamp as JSON has it: ISO 8601, with the zone's minutes."""
    if "infinity" in text:
        return text
    body, _, era = text.replace(" ", "T", 1).partition(" ")
    minutes = ":00" if _WHOLE_HOURS.search(body) else ""
    return body + minutes + (" " + era if era else "")


def _to_jsonb(types: Signature, a: pa.Array) -> Outcome:
    return pa.array([_as_json(v) for v in to_json(a, types.args[0])], pa.string())


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


_KINDS = {
    "bool": "boolean", "numeric": "numeric", "int2": "smallint", "int4": "integer",
    "int8": "bigint", "float4": "real", "float8": "double precision",
}  # fmt: skip


def _cast(target: SqlType) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        value = loads(text)
        if target.name == "bool":
            if isinstance(value, bool):
                return value
        elif isinstance(value, Decimal):
            return _number(value, target)
        kind = _typeof(text).replace("number", "numeric")
        raise fail("22023", f"cannot cast jsonb {kind} to type {_KINDS[target.name]}")

    return convert


def _number(value: Decimal, target: SqlType) -> Any:
    from decimal import ROUND_HALF_UP, Context

    wide = Context(prec=200)
    if target.name in MAX_NUMBERS:
        if abs(value) > 10**20:
            raise Failure(out_of_range(target))
        whole = int(value.to_integral_value(ROUND_HALF_UP))
        if not -MAX_NUMBERS[target.name] <= whole < MAX_NUMBERS[target.name]:
            raise Failure(out_of_range(target))
        return whole
    if target.name in ("float4", "float8"):
        result = float(value)
        if result in (float("inf"), float("-inf")):
            raise fail("22003", f'"{value}" is out of range for type {target}')
        return result
    scale = target.scale or 0
    if value.adjusted() > 40:
        raise fail("22003", "numeric field overflow")
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, wide)
    if (target.length is None and rounded != value) or abs(rounded.scaleb(scale, wide)) >= limit_of(
        target
    ):
        raise fail("22003", "numeric field overflow")
    return format(rounded, "f")


def _cast_kernel(types: Signature, a: pa.Array) -> Outcome:
    from foreshore.expr.functions.rows import rowwise

    return rowwise(types, _cast(types.result), a)


declare("->", "jsonb text", "jsonb", _get(_key, _as_json), stem="json_get")
declare("->", "jsonb int4", "jsonb", _get(_element, _as_json), stem="json_get")
declare("->>", "jsonb text", "text", _get(_key, as_text), stem="json_get_text")
declare("->>", "jsonb int4", "text", _get(_element, as_text), stem="json_get_text")
declare("#>", "jsonb text[]", "jsonb", _get(_path, _as_json), stem="json_path")
declare("#>>", "jsonb text[]", "text", _get(_path, as_text), stem="json_path_text")


def _variadic_path(show: Callable[[Any], str | None]) -> Kernel:
    return mapped(lambda text, *path: show(_path(loads(text), path)))


declare("jsonb_extract_path", "jsonb text", "jsonb", _variadic_path(_as_json), variadic=True)
declare("jsonb_extract_path_text", "jsonb text", "text", _variadic_path(as_text), variadic=True)
declare(
    "@>",
    "jsonb jsonb",
    "bool",
    mapped(lambda a, b: _contains(loads(a), loads(b), top=True)),
    stem="json_contains",
)
declare(
    "<@",
    "jsonb jsonb",
    "bool",
    mapped(lambda a, b: _contains(loads(b), loads(a), top=True)),
    stem="json_contained",
)
declare("?", "jsonb text", "bool", mapped(_exists), stem="json_exists")
declare(
    "?|",
    "jsonb text[]",
    "bool",
    mapped(lambda t, keys: any(k is not None and _exists(t, k) for k in keys)),
    stem="json_exists_any",
)
declare(
    "?&",
    "jsonb text[]",
    "bool",
    mapped(lambda t, keys: all(k is None or _exists(t, k) for k in keys)),
    stem="json_exists_all",
)
declare("||", "jsonb jsonb", "jsonb", mapped(_concatenate), stem="concatenate")
declare("-", "jsonb text", "jsonb", mapped(_delete_key), stem="json_delete", fallible=True)
declare("-", "jsonb text[]", "jsonb", mapped(_delete_keys), stem="json_delete", fallible=True)
declare("-", "jsonb int4", "jsonb", mapped(_delete_index), stem="json_delete", fallible=True)
declare("#-", "jsonb text[]", "jsonb", mapped(_delete_path), stem="json_delete_path", fallible=True)
declare("jsonb_set", "jsonb text[] jsonb", "jsonb", mapped(_set), fallible=True)
declare("jsonb_set", "jsonb text[] jsonb bool", "jsonb", mapped(_set), fallible=True)
declare("jsonb_insert", "jsonb text[] jsonb", "jsonb", mapped(_insert), fallible=True)
declare("jsonb_insert", "jsonb text[] jsonb bool", "jsonb", mapped(_insert), fallible=True)
declare("jsonb_typeof", "jsonb", "text", mapped(_typeof))
declare("jsonb_array_length", "jsonb", "int4", mapped(_array_length), fallible=True)
declare("jsonb_strip_nulls", "jsonb", "jsonb", mapped(lambda t: dumps(_strip_nulls(loads(t)))))
declare("jsonb_pretty", "jsonb", "text", mapped(lambda t: _pretty(loads(t))))
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
hidden("json_key(jsonb)", "jsonb", "bytea", mapped(json_order_bytes))
for _target in _KINDS:
    hidden(f"cast(jsonb,{_target})", "jsonb", _target, _cast_kernel, fallible=True)

declare_table("jsonb_object_keys", "jsonb", "text[]", mapped(_object_keys), fallible=True)
declare_table(
    "jsonb_array_elements",
    "jsonb",
    "jsonb[]",
    mapped(_elements("jsonb_array_elements", dumps)),
    columns="value",
    fallible=True,
)
declare_table(
    "jsonb_array_elements_text",
    "jsonb",
    "text[]",
    mapped(_elements("jsonb_array_elements_text", as_text)),
    columns="value",
    fallible=True,
)
declare_table(
    "jsonb_each",
    "jsonb",
    "text[]",
    mapped(_each_keys("jsonb_each")),
    columns="key value",
    more=(("json_get(jsonb,text)", JSONB),),
    fallible=True,
)
declare_table(
    "jsonb_each_text",
    "jsonb",
    "text[]",
    mapped(_each_keys("jsonb_each_text")),
    columns="key value",
    more=(("json_get_text(jsonb,text)", TEXT),),
    fallible=True,
)

__all__ = ["array_of"]
