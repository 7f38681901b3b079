"""SET column[subscript] = value: the value of the whole column with the part replaced."""

from collections.abc import Sequence

from foreshore.errors import DatatypeMismatch, FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Case, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.arrays import make_array
from foreshore.sql.bind.coerce import assign, coerce, to_known
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.positions import at_of
from foreshore.types import BOOL, INT4, JSONB, TEXT, SqlType


def with_part(
    binder: ExpressionBinder, column: Scalar, name: str, assignment: ast.Assignment
) -> Scalar:
    """Return the value of `column`, of that name, after an assignment to a part of it."""
    type, value = type_of(column), assignment.value
    if isinstance(value, ast.Default):
        raise FeatureNotSupported(
            "cannot set an array element to DEFAULT", position=at_of(value) + 1
        )
    if type.name == "jsonb":
        return _with_member(binder, column, name, assignment)
    if type.element is None or len(assignment.subscripts) > 1:
        raise FeatureNotSupported(
            "assigning to a part of a column is supported for jsonb and arrays of one dimension",
            position=assignment.at + 1,
        )
    (subscript,) = assignment.subscripts
    place = _coerced(binder, subscript, INT4, "array subscript must have type integer")
    item = assign(binder.planning, binder.bind(value), type.element, name, at_of(value))
    return Call("array_assigned(anyarray,int4,anyelement)", (column, place, item), type)


def _with_member(
    binder: ExpressionBinder, column: Scalar, name: str, assignment: ast.Assignment
) -> Scalar:
    steps: Sequence[Scalar] = [
        to_known(binder.planning, binder.bind(each), at_of(each)) for each in assignment.subscripts
    ]
    is_index = type_of(steps[0]).name in ("int2", "int4")
    texts = tuple(
        _as_text(binder, step, at_of(each))
        for step, each in zip(steps, assignment.subscripts, strict=True)
    )
    value = assignment.value
    new = assign(binder.planning, binder.bind(value), JSONB, name, at_of(value))
    is_null = Call("is_null", (column,), BOOL)
    empty = Literal("[]" if is_index else "{}", JSONB)
    whole = Case(((is_null, empty),), column, JSONB)
    path = make_array(texts, TEXT)
    return Call("jsonb_assigned(jsonb,text[],jsonb)", (whole, path, new), JSONB)


def _as_text(binder: ExpressionBinder, step: Scalar, at: int) -> Scalar:
    if type_of(step).name not in ("text", "int2", "int4"):
        raise DatatypeMismatch(
            f"subscript type {type_of(step)} is not supported",
            hint="jsonb subscript must be coercible to either integer or text.",
            position=at + 1,
        )
    text = coerce(binder.planning, step, TEXT, "assignment", at)
    assert text is not None, step
    return text


def _coerced(
    binder: ExpressionBinder, expr: ast.Expression, target: SqlType, message: str
) -> Scalar:
    found = coerce(binder.planning, binder.bind(expr), target, "assignment", at_of(expr))
    if found is None:
        raise DatatypeMismatch(message, position=at_of(expr) + 1)
    return found
