"""SET column[subscript] = value: the value of the whole column with the part replaced."""

from foreshore.errors import DatatypeMismatch, FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Case, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.arrays import index_of, is_array, make_array, slice_bounds
from foreshore.sql.bind.coerce import assign, cast, coerce, to_known
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.positions import at_of
from foreshore.types import BOOL, JSONB, TEXT, item_of, shaped_array


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
    if not is_array(type):
        raise DatatypeMismatch(
            f"cannot subscript type {type} because it does not support subscripting",
            position=assignment.at + 1,
        )
    steps = assignment.subscripts
    is_slice = any(step.slice for step in steps)
    if type.element is not None and len(steps) == 1 and not is_slice:
        item = assign(binder.planning, binder.bind(value), type.element, name, at_of(value))
        place = _index(binder, steps[0])
        return Call("array_assigned(anyarray,int4,anyelement)", (column, place, item), type)
    shaped = type if type.element is None else shaped_array(type.element)
    array = cast(binder.planning, column, shaped, assignment.at)
    wanted = shaped if is_slice else item_of(shaped)
    new = assign(binder.planning, binder.bind(value), wanted, name, at_of(value))
    places = slice_bounds(binder, steps) if is_slice else [_index(binder, step) for step in steps]
    part = "shaped_slice_assigned(anyshaped,anyshaped,int4)"
    key = part if is_slice else "shaped_assigned(anyshaped,anyelement,int4)"
    changed = Call(key, (array, new, *places), shaped)
    return assign(binder.planning, changed, type, name, assignment.at)


def _index(binder: ExpressionBinder, step: ast.Place) -> Scalar:
    found = index_of(binder, step.lower)
    assert found is not None, step
    return found


def _with_member(
    binder: ExpressionBinder, column: Scalar, name: str, assignment: ast.Assignment
) -> Scalar:
    keys = [each.lower for each in assignment.subscripts if each.lower is not None]
    if any(each.slice for each in assignment.subscripts):
        raise DatatypeMismatch(
            "jsonb subscript does not support slices", position=assignment.subscripts[0].at + 1
        )
    steps = [to_known(binder.planning, binder.bind(key), at_of(key)) for key in keys]
    is_index = type_of(steps[0]).name in ("int2", "int4")
    texts = tuple(_as_text(binder, step, at_of(key)) for step, key in zip(steps, keys, strict=True))
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
