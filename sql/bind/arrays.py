"""Bind arrays: constructors and subscripts."""

from collections.abc import Sequence

from foreshore.errors import DatatypeMismatch, IndeterminateDatatype
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.shaped import EMPTY, LEAST, MOST, shaped_of, stacked, stored_shaped
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.coerce import cast, coerce, common_type, is_unknown, to_common
from foreshore.sql.bind.containers import subscript_list, subscript_map
from foreshore.sql.bind.planning import located
from foreshore.sql.bind.positions import at_of
from foreshore.types import (
    CHAR,
    CONTAINERS,
    INT4,
    NUMERIC,
    TEXT,
    UNCONSTRAINED_SCALE,
    VECTORS,
    SqlType,
    array_of,
    item_of,
    numeric_of_scale,
    shaped_array,
)


def bind_array(binder: Binder, expr: ast.ArrayOf, element: SqlType | None) -> Scalar:
    """Return ARRAY[...]; a cast gives the type `element` of the elements."""
    if not expr.items and element is None:
        raise IndeterminateDatatype(
            "cannot determine type of empty array",
            hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
            position=expr.at + 1,
        )
    items = [
        bind_array(binder, item, element)
        if isinstance(item, ast.ArrayOf) and item.kind == "array" and item.items
        else binder.bind(item)
        for item in expr.items
    ]
    offsets = [at_of(item) for item in expr.items]
    if element is None:
        common = common_type(items, "ARRAY", offsets, keeps_digits=binder.planning.keeps_digits)
        if common.element is not None or common.name == "shaped":
            inner = common.element or item_of(common)
            return _of_arrays(binder, items, shaped_array(inner), offsets)
        scalars = [
            to_common(binder.planning, item, common, "ARRAY", at)
            for item, at in zip(items, offsets, strict=True)
        ]
    else:
        if any(is_array(type_of(item)) for item in items):
            return _of_arrays(binder, items, shaped_array(element), offsets)
        common = element
        scalars = [
            cast(binder.planning, item, element, at)
            for item, at in zip(items, offsets, strict=True)
        ]
        digits = max((type_of(scalar).scale or 0 for scalar in scalars), default=0)
        if element == NUMERIC and digits > UNCONSTRAINED_SCALE:  # a constant has its own scale
            common = numeric_of_scale(digits, trim=True)
            scalars = [
                to_common(binder.planning, item, common, "ARRAY", at)
                for item, at in zip(scalars, offsets, strict=True)
            ]
    return make_array(tuple(scalars), common)


def is_array(type: SqlType) -> bool:
    """Return whether values of `type` are arrays, plain or of any shape."""
    return type.element is not None or type.name == "shaped"


def _of_arrays(binder: Binder, items: list[Scalar], type: SqlType, offsets: list[int]) -> Scalar:
    """Return the array of arrays."""
    scalars = tuple(
        _shaped(binder, item, type, at) for item, at in zip(items, offsets, strict=True)
    )
    if all(isinstance(scalar, Literal) for scalar in scalars):
        data = [scalar.value for scalar in scalars if isinstance(scalar, Literal)]
        with located(offsets[0]):
            found = stacked([EMPTY if d is None else shaped_of(d, type) for d in data])
        return Literal(stored_shaped(found, type), type)
    return Call("shaped(any)", scalars, type)


def _shaped(binder: Binder, item: Scalar, type: SqlType, at: int) -> Scalar:
    """Return an array as one of any shape, its elements cast first: they may have another scale."""
    element = type_of(item).element
    if element is not None and element != item_of(type):
        item = cast(binder.planning, item, array_of(item_of(type)), at)
    return cast(binder.planning, item, type, at)


def _shaped_subscript(binder: Binder, value: Scalar, steps: list[ast.Subscript], at: int) -> Scalar:
    """Return the element or slice at all subscripts together."""
    type = type_of(value)
    if not any(step.slice for step in steps):
        places = [index_of(binder, step.lower) for step in steps]
        args = (value, *(place for place in places if place is not None))
        return Call("shaped_subscript(any)", args, item_of(type))
    bounds = slice_bounds(binder, steps)
    return Call("shaped_slice(any)", (value, *bounds), type)


def slice_bounds(binder: Binder, steps: Sequence[ast.Subscript | ast.Place]) -> list[Scalar]:
    """Return the lower and upper bound of each subscript of a slice."""
    bounds: list[Scalar] = []
    for step in steps:
        # In a slice, a subscript alone is the upper bound.
        lower, upper = (step.lower, step.upper) if step.slice else (None, step.lower)
        first = Literal(LEAST if step.slice else 1, INT4)
        bounds.append(index_of(binder, lower) or first)
        bounds.append(index_of(binder, upper) or Literal(MOST, INT4))
    return bounds


_WITH_SUBSCRIPTS = frozenset(("jsonb", "name", *CONTAINERS, *VECTORS))


def bind_subscript(binder: Binder, expr: ast.Subscript) -> Scalar:
    """Return an element or slice of an array, or the value at a key of a jsonb document."""
    steps, base = [expr], expr.arg
    while isinstance(base, ast.Subscript):
        steps.append(base)
        base = base.arg
    value = binder.bind(base)
    element = type_of(value).element
    if element is not None and len(steps) > 1 and element.name not in _WITH_SUBSCRIPTS:
        value = cast(binder.planning, value, shaped_array(element), expr.at)
    if type_of(value).name == "shaped":
        return _shaped_subscript(binder, value, steps[::-1], expr.at)
    value = binder.bind(expr.arg)
    type = type_of(value)
    if type.name == "list":
        return subscript_list(binder, value, expr)
    if type.name == "map":
        return subscript_map(binder, value, expr)
    if type.name == "name" and not expr.slice:
        return _character(binder, value, expr)
    if type.element is None and type.name not in (*VECTORS, "jsonb"):
        raise DatatypeMismatch(
            f"cannot subscript type {type} because it does not support subscripting",
            position=at_of(expr.arg) + 1,
        )
    if type.name == "jsonb":
        if expr.slice or expr.lower is None:
            raise DatatypeMismatch("jsonb subscript does not support slices", position=expr.at + 1)
        return _jsonb_subscript(binder, value, expr.lower, expr.at)
    if expr.slice:
        bounds = [index_of(binder, bound) for bound in (expr.lower, expr.upper)]
        if bounds[0] is None:
            bounds[0] = Literal(0 if type.name in VECTORS else 1, INT4)
        args = [value, *(bound for bound in bounds if bound is not None)]
        return binder.call("array_slice", args, expr.at)
    index = index_of(binder, expr.lower)
    assert index is not None
    return binder.call("array_subscript", (value, index), expr.at)


def _character(binder: Binder, name: Scalar, expr: ast.Subscript) -> Scalar:
    """Return `name[i]`: a character of a name, the first of which is at 0."""
    index = index_of(binder, expr.lower)
    assert index is not None
    text = coerce(binder.planning, name, TEXT, "implicit", expr.at)
    assert text is not None
    one = Literal(1, INT4)
    place = binder.call("+", (index, one), expr.at)
    letter = binder.call("substr", (text, place, one), expr.at)
    found = coerce(binder.planning, letter, CHAR, "explicit", expr.at)
    assert found is not None
    return found


def _jsonb_subscript(binder: Binder, value: Scalar, expr: ast.Expression, at: int) -> Scalar:
    """Return `value[expr]`: the value at a path of one step, given as text."""
    scalar = binder.bind(expr)
    for target in (TEXT,) if is_unknown(scalar) else (INT4, TEXT):
        step = coerce(binder.planning, scalar, target, "implicit", at_of(expr))
        if step is not None:
            step = coerce(binder.planning, step, TEXT, "assignment", at_of(expr))
            assert step is not None
            return binder.call("#>", (value, make_array((step,), TEXT)), at)
    raise DatatypeMismatch(
        f"subscript type {type_of(scalar)} is not supported", position=at_of(expr) + 1
    )


def index_of(binder: Binder, expr: ast.Expression | None) -> Scalar | None:
    """Return a subscript of an array, None if it is left out; raises DatatypeMismatch."""
    if expr is None:
        return None
    scalar = binder.bind(expr)
    result = coerce(binder.planning, scalar, INT4, "assignment", at_of(expr))
    if result is None:
        raise DatatypeMismatch("array subscript must have type integer", position=at_of(expr) + 1)
    return result


def make_array(scalars: tuple[Scalar, ...], element: SqlType) -> Scalar:
    """Return ARRAY[...] of scalars that all have the type `element`."""
    type = array_of(element)
    if all(isinstance(scalar, Literal) for scalar in scalars):
        values = tuple(scalar.value for scalar in scalars if isinstance(scalar, Literal))
        return Literal(values, type)
    return Call("array", scalars, type)
