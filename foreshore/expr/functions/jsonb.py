"""jsonb: operators and functions over documents kept as canonical text."""

from collections.abc import Callable
from typing import Any

from foreshore.expr.functions.function import Kernel, declare, declare_table, hidden
from foreshore.expr.functions.jsontext import (
    MISSING,
    as_json,
    dumps,
    index_of,
    json_order_bytes,
    kind_of,
    loads,
    stored_keys,
)
from foreshore.expr.functions.rows import fail, mapped
from foreshore.types import JSONB, TEXT


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
            index = index_of(step)
            document = MISSING if index is None else _element(document, index)
        else:
            document = _key(document, step)
        if document is MISSING:
            return MISSING
    return document


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


def _array_length(text: str) -> int:
    document = loads(text)
    if isinstance(document, list):
        return len(document)
    if isinstance(document, dict):
        raise fail("22023", "cannot get array length of a non-array")
    raise fail("22023", "cannot get array length of a scalar")


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


declare("->", "jsonb text", "jsonb", _get(_key, as_json), stem="json_get")
declare("->", "jsonb int4", "jsonb", _get(_element, as_json), stem="json_get")
declare("->>", "jsonb text", "text", _get(_key, as_text), stem="json_get_text")
declare("->>", "jsonb int4", "text", _get(_element, as_text), stem="json_get_text")
declare("#>", "jsonb text[]", "jsonb", _get(_path, as_json), stem="json_path")
declare("#>>", "jsonb text[]", "text", _get(_path, as_text), stem="json_path_text")


def _variadic_path(show: Callable[[Any], str | None]) -> Kernel:
    return mapped(lambda text, *path: show(_path(loads(text), path)))


declare("jsonb_extract_path", "jsonb text", "jsonb", _variadic_path(as_json), variadic=True)
declare("jsonb_extract_path_text", "jsonb text", "text", _variadic_path(as_text), variadic=True)
declare(
    "@> jsonb_contains",
    "jsonb jsonb",
    "bool",
    mapped(lambda a, b: _contains(loads(a), loads(b), top=True)),
    stem="json_contains",
)
declare(
    "<@ jsonb_contained",
    "jsonb jsonb",
    "bool",
    mapped(lambda a, b: _contains(loads(b), loads(a), top=True)),
    stem="json_contained",
)
declare("? jsonb_exists", "jsonb text", "bool", mapped(_exists), stem="json_exists")
declare(
    "?| jsonb_exists_any",
    "jsonb text[]",
    "bool",
    mapped(lambda t, keys: any(k is not None and _exists(t, k) for k in keys)),
    stem="json_exists_any",
)
declare(
    "?& jsonb_exists_all",
    "jsonb text[]",
    "bool",
    mapped(lambda t, keys: all(k is None or _exists(t, k) for k in keys)),
    stem="json_exists_all",
)
declare("jsonb_typeof", "jsonb", "text", mapped(kind_of))
declare("jsonb_array_length", "jsonb", "int4", mapped(_array_length), fallible=True)
declare("jsonb_pretty", "jsonb", "text", mapped(lambda t: _pretty(loads(t))))
hidden("json_key(jsonb)", "jsonb", "bytea", mapped(json_order_bytes))

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
