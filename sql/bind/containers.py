"""Bind lists and maps: LIST[...], MAP[...], those of queries, and subscripts."""

from foreshore.errors import (
    CannotCoerce,
    DatatypeMismatch,
    IndeterminateDatatype,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import Context
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.coerce import cast, coerce, common_type, to_common
from foreshore.sql.bind.positions import at_of
from foreshore.structured import stored, stored_map
from foreshore.types import INT8, TEXT, SqlType, item_of, list_of, map_of


def bind_container(binder: Binder, expr: ast.ArrayOf, target: SqlType | None) -> Scalar:
    """Return LIST[...] or MAP[...]; a cast gives the type `target`."""
    if target is not None and target.name != expr.kind:
        target = None
    if not expr.items and target is None:
        raise IndeterminateDatatype(
            f"cannot determine type of empty {expr.kind}",
            hint=f"Explicitly cast to the desired type, for example {expr.kind}[]::...",
            position=expr.at + 1,
        )
    is_map = expr.kind == "map"
    keys = [_key(binder, key) for key in expr.items[::2]] if is_map else []
    values = expr.items[1::2] if is_map else expr.items
    items = _items(binder, expr.kind, values, target)
    if target is None:
        item = type_of(items[0])
        type = map_of(item) if is_map else list_of(item)
    else:
        type = target
    parts = [part for pair in zip(keys, items, strict=True) for part in pair] if is_map else items
    literals = [part for part in parts if isinstance(part, Literal)]
    if len(literals) == len(parts):
        data = [literal.value for literal in literals]
        if not is_map:
            return Literal(stored(data, type), type)
        pairs = {k: v for k, v in zip(data[::2], data[1::2], strict=True) if k is not None}
        return Literal(stored_map(pairs, type), type)
    return Call(f"{expr.kind}(any)", tuple(parts), type)


def _key(binder: Binder, expr: ast.Expression) -> Scalar:
    key = coerce(binder.planning, binder.bind(expr), TEXT, "implicit", at_of(expr))
    if key is None:
        raise DatatypeMismatch(
            f"map key type must be text, got {type_of(binder.bind(expr))}",
            position=at_of(expr) + 1,
        )
    return key


def _items(
    binder: Binder,
    kind: str,
    exprs: tuple[ast.Expression, ...],
    target: SqlType | None,
) -> list[Scalar]:
    item = None if target is None else item_of(target)
    scalars = [
        bind_container(binder, expr, item)
        if isinstance(expr, ast.ArrayOf) and expr.kind != "array"
        else binder.bind(expr)
        for expr in exprs
    ]
    offsets = [at_of(expr) for expr in exprs]
    if item is None:
        if not scalars:
            return []
        item = common_type(scalars, kind.upper(), offsets)
        return [
            to_common(binder.planning, scalar, item, kind.upper(), at)
            for scalar, at in zip(scalars, offsets, strict=True)
        ]
    found = []
    for scalar, at in zip(scalars, offsets, strict=True):
        try:
            found.append(cast(binder.planning, scalar, item, at))
        except CannotCoerce:
            raise CannotCoerce(
                f"{kind.upper()} could not convert type {type_of(scalar)} to {item}",
                position=at + 1,
            ) from None
    return found


def subscript_list(binder: Binder, value: Scalar, expr: ast.Subscript) -> Scalar:
    """Return an item or a slice of a list."""
    bounds = [
        None if bound is None else _place(binder, bound) for bound in (expr.lower, expr.upper)
    ]
    if not expr.slice:
        assert bounds[0] is not None
        return binder.call("list_index", (value, bounds[0]), expr.at)
    args = [value, bounds[0] or Literal(1, INT8)]
    if bounds[1] is not None:
        args.append(bounds[1])
    key = f"list_slice(anylist{',int8' * (len(args) - 1)})"
    return Call(key, tuple(args), type_of(value))


def subscript_map(binder: Binder, value: Scalar, expr: ast.Subscript) -> Scalar:
    """Return the value of a map at a key."""
    if expr.slice or expr.lower is None:
        raise DatatypeMismatch("map subscript does not support slices", position=expr.at + 1)
    return binder.call("->", (value, binder.bind(expr.lower)), expr.at)


def _place(binder: Binder, expr: ast.Expression) -> Scalar:
    scalar = binder.bind(expr)
    contexts: tuple[Context, ...] = ("assignment", "explicit")
    for context in contexts:
        place = coerce(binder.planning, scalar, INT8, context, at_of(expr))
        if place is not None:
            return place
    raise DatatypeMismatch(
        f"subscripting does not support casting from {type_of(scalar)} to bigint",
        position=at_of(expr) + 1,
    )


def of_array(array: Scalar) -> Scalar:
    """Return the list of an array's elements."""
    element = type_of(array).element
    assert element is not None, array
    return Call("array_to_list(anyarray)", (array,), list_of(element))
