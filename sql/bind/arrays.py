"""Bind arrays: constructors and subscripts."""

from foreshore.errors import DatatypeMismatch, FeatureNotSupported, IndeterminateDatatype
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.coerce import cast, coerce, common_type, is_unknown, to_common
from foreshore.sql.bind.containers import subscript_list, subscript_map
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.positions import at_of
from foreshore.types import (
    CHAR,
    INT4,
    NUMERIC,
    TEXT,
    UNCONSTRAINED_SCALE,
    VECTORS,
    SqlType,
    array_of,
    numeric_of_scale,
)


def bind_array(binder: ExpressionBinder, expr: ast.ArrayOf, element: SqlType | None) -> Scalar:
    """Return ARRAY[...]; a cast gives the type `element` of the elements."""
    if not expr.items and element is None:
        raise IndeterminateDatatype(
            "cannot determine type of empty array",
            hint="Explicitly cast to the desired type, for example ARRAY[]::integer[].",
            position=expr.at + 1,
        )
    if any(isinstance(item, ast.ArrayOf) for item in expr.items):
        raise FeatureNotSupported("multidimensional arrays are not supported", position=expr.at + 1)
    items = [binder.bind(item) for item in expr.items]
    offsets = [at_of(item) for item in expr.items]
    if element is None:
        common = common_type(items, "ARRAY", offsets)
        if common.element is not None:
            raise FeatureNotSupported(
                "multidimensional arrays are not supported", position=expr.at + 1
            )
        scalars = [
            to_common(binder.planning, item, common, "ARRAY", at)
            for item, at in zip(items, offsets, strict=True)
        ]
    else:
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


def bind_subscript(binder: ExpressionBinder, expr: ast.Subscript) -> Scalar:
    """Return an element or slice of an array, or the value at a key of a jsonb document."""
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
        bounds = [_index(binder, bound) for bound in (expr.lower, expr.upper)]
        if bounds[0] is None:
            bounds[0] = Literal(0 if type.name in VECTORS else 1, INT4)
        args = [value, *(bound for bound in bounds if bound is not None)]
        return binder.call("array_slice", args, expr.at)
    index = _index(binder, expr.lower)
    assert index is not None
    return binder.call("array_subscript", (value, index), expr.at)


def _character(binder: ExpressionBinder, name: Scalar, expr: ast.Subscript) -> Scalar:
    """Return `name[i]`: a character of a name, the first of which is at 0."""
    index = _index(binder, expr.lower)
    assert index is not None
    text = coerce(binder.planning, name, TEXT, "implicit", expr.at)
    assert text is not None
    one = Literal(1, INT4)
    place = binder.call("+", (index, one), expr.at)
    letter = binder.call("substr", (text, place, one), expr.at)
    found = coerce(binder.planning, letter, CHAR, "explicit", expr.at)
    assert found is not None
    return found


def _jsonb_subscript(
    binder: ExpressionBinder, value: Scalar, expr: ast.Expression, at: int
) -> Scalar:
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


def _index(binder: ExpressionBinder, expr: ast.Expression | None) -> Scalar | None:
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
