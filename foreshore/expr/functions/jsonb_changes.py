"""Changes of jsonb documents: ||, -, #-, jsonb_set and others, jsonb_insert, jsonb_strip_nulls."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from foreshore.expr.functions.function import Kernel, Outcome, Signature, declare, hidden
from foreshore.expr.functions.jsontext import dumps, index_of, loads
from foreshore.expr.functions.rows import collect, fail, mapped
from foreshore.shaped import MOST_ITEMS


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
        index = index_of(step)
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


_NULL_TREATMENTS = ("raise_exception", "use_json_null", "delete_key", "return_target")


def _set_lax(
    text: str | None,
    path: Any,
    new: str | None,
    create: bool | None = True,
    treatment: str | None = "use_json_null",
) -> str | None:
    """Return jsonb_set, with a NULL of SQL as new value treated as `treatment` says."""
    if text is None or path is None or create is None:
        return None
    if treatment not in _NULL_TREATMENTS:
        words = ", ".join(f'"{word}"' for word in ("delete_key", "return_target", "use_json_null"))
        raise fail("22023", f'null_value_treatment must be {words}, or "raise_exception"')
    if new is not None:
        return _set(text, path, new, create)
    match treatment:
        case "raise_exception":
            raise fail("22004", "JSON value must not be null")
        case "use_json_null":
            return _set(text, path, "null", create)
        case "delete_key":
            return _delete_path(text, path)
        case _:
            return text


def _of_nulls(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel that applies `compute` to each row, NULLs included."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        rows = zip(*(array.to_pylist() for array in arrays), strict=True)
        return collect(types, lambda row: compute(*row), ((row,) for row in rows))

    return kernel


def _assigned(text: str | None, path: Any, new: str | None) -> str | None:
    """Return a document with the value at `path`, and what is missing on the way there."""
    if text is None or path is None:
        return None
    if None in path:
        raise fail("22004", "jsonb subscript in assignment must not be null")
    value = None if new is None else loads(new)
    try:
        return dumps(_with_value(loads(text), path, value))
    except RecursionError:
        raise fail("54001", "stack depth limit exceeded") from None


def _with_value(document: Any, path: Sequence[str], new: Any) -> Any:
    """Return a document with a new value at `path`, which may be of any length."""
    passed: list[tuple[Any, Any]] = []  # containers on the way, and the key or place of the next
    node = document
    for level, step in enumerate(path):
        if node is _MISSING:
            node = {} if index_of(step) is None else []
        if isinstance(node, dict):
            passed.append((node, step))
            node = node.get(step, _MISSING)
        elif isinstance(node, list):
            at = _place(node, step, level)
            passed.append((node, at))
            node = node[at] if at < len(node) else _MISSING
        else:
            raise fail("22023", "cannot replace existing key")
    for container, key in reversed(passed):
        if isinstance(container, dict):
            new = {**container, key: new}
        else:
            gap = [None] * (key - len(container))
            new = [*container[:key], *gap, new, *container[key + 1 :]]
    return new


def _place(node: list[Any], step: str, level: int) -> int:
    """Return the place in an array that a step of a path is, perhaps behind its end."""
    index = index_of(step)
    if index is None:
        raise fail("22P02", f'path element at position {level + 1} is not an integer: "{step}"')
    at = index + len(node) if index < 0 else index
    if at < 0:
        raise fail("22023", f"path element at position {level + 1} is out of range: {index}")
    if at > MOST_ITEMS:
        raise fail("54000", "array size exceeds the maximum allowed")
    return at


_MISSING = object()


def _insert(text: str, path: Any, new: str, after: bool = False) -> str:
    document = loads(text)
    if not isinstance(document, dict | list):
        raise fail("22023", "cannot set path in scalar")
    if not path:
        return dumps(document)
    return dumps(_changed(document, list(path), 0, loads(new), insert=True, after=after))


def _strip_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _strip_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_strip_nulls(v) for v in value]
    return value


declare("|| jsonb_concat", "jsonb jsonb", "jsonb", mapped(_concatenate), stem="concatenate")
declare(
    "- jsonb_delete", "jsonb text", "jsonb", mapped(_delete_key), stem="json_delete", fallible=True
)
declare(
    "- jsonb_delete",
    "jsonb text[]",
    "jsonb",
    mapped(_delete_keys),
    stem="json_delete",
    fallible=True,
)
declare(
    "- jsonb_delete",
    "jsonb int4",
    "jsonb",
    mapped(_delete_index),
    stem="json_delete",
    fallible=True,
)
declare(
    "#- jsonb_delete_path",
    "jsonb text[]",
    "jsonb",
    mapped(_delete_path),
    stem="json_delete_path",
    fallible=True,
)
declare("jsonb_set", "jsonb text[] jsonb", "jsonb", mapped(_set), fallible=True)
declare("jsonb_set", "jsonb text[] jsonb bool", "jsonb", mapped(_set), fallible=True)
declare("jsonb_insert", "jsonb text[] jsonb", "jsonb", mapped(_insert), fallible=True)
declare("jsonb_insert", "jsonb text[] jsonb bool", "jsonb", mapped(_insert), fallible=True)
declare("jsonb_strip_nulls", "jsonb", "jsonb", mapped(lambda t: dumps(_strip_nulls(loads(t)))))
for _args in ("jsonb text[] jsonb", "jsonb text[] jsonb bool", "jsonb text[] jsonb bool text"):
    declare("jsonb_set_lax", _args, "jsonb", _of_nulls(_set_lax), strict=False, fallible=True)
hidden(
    *("jsonb_assigned(jsonb,text[],jsonb)", "jsonb text[] jsonb", "jsonb", _of_nulls(_assigned)),
    strict=False,
    fallible=True,
)
