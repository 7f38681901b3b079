"""Long lists of constants: `x IN (1, 2, ...)` as one comparison of x with an array.

A test for each constant would make each pass over the plan as long as the list.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.expr.columns import type_of
from foreshore.expr.constant_lists import is_compared_by_bytes
from foreshore.expr.equality import is_plain
from foreshore.expr.ir import Call, Literal, Or, Parameter, Scalar
from foreshore.sql import ast
from foreshore.sql.ast.constant_list import OF_PARAMETER, ConstantList
from foreshore.sql.ast.form_rows import FormRows, Literals
from foreshore.sql.bind.argument_rows import are_compared_as_they_are, in_arguments
from foreshore.sql.bind.coerce import to_common
from foreshore.sql.bind.constant_columns import column_values, fits
from foreshore.sql.bind.planning import LiteralDecides
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.row_values import RowValue
from foreshore.types import BOOL, array_of

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

LONG_LIST = 100  # constants beyond which they are an array

_WHOLE = {"eq": "eq_any", "ne": "ne_all"}


def over_array(
    first: Scalar, items: Sequence[Scalar | RowValue], tests: Sequence[Scalar] = ()
) -> Scalar | None:
    """Return `x = ANY (items)` or `x <> ALL (items)` if `first` compares x with the first item.

    `items` have to be constants of the type in which they are compared, which needs no more than
    their bytes; None if they are not. `tests` are the comparisons with each of them, if known.
    """
    if not isinstance(first, Call) or first.function not in _WHOLE:
        return None
    left, right = first.args
    type = type_of(right)
    if not isinstance(right, Literal) or not is_compared_by_bytes(type_of(left), type):
        return None
    if type.name == "numeric":
        if isinstance(left, Call) and left.function.startswith("cast"):
            return None  # a look-up does not see through this for an array
    elif type != type_of(left):
        return None
    if tests and not (
        len(tests) == len(items)
        and all(isinstance(e, Call) and e.function == first.function for e in tests)
        and all(e.args[0] == left for e in tests if isinstance(e, Call))
    ):
        return None
    if not tests and items[0] != right:  # items are converted
        return None
    values = [item.value for item in items if isinstance(item, Literal) and item.type == type]
    if len(values) < len(items):
        return None
    array = Literal(tuple(dict.fromkeys(values)), array_of(type_of(left)))
    return Call(_WHOLE[first.function], (left, array), BOOL)


def any_of(scalars: Sequence[Scalar]) -> Scalar:
    """Return the OR of `scalars`; many comparisons of one value with constants become one."""
    if len(scalars) <= LONG_LIST:
        return Or(tuple(scalars))
    groups: dict[Scalar, list[Call]] = {}
    rest: list[Scalar] = []
    for each in scalars:
        if isinstance(each, Call) and each.function == "eq" and isinstance(each.args[1], Literal):
            groups.setdefault(each.args[0], []).append(each)
        else:
            rest.append(each)
    for tests in groups.values():
        whole = None
        if len(tests) > LONG_LIST:
            whole = over_array(tests[0], [test.args[1] for test in tests], tests)
        rest += tests if whole is None else [whole]
    return Or(tuple(rest)) if len(rest) > 1 else rest[0]


def in_long_list(
    binder: "Binder",
    expr: ast.InList,
    left: Scalar | RowValue,
    more: ConstantList | FormRows,
) -> Scalar | None:
    """Return IN of a long list bound by column; None if it has to be bound item by item."""
    if more is OF_PARAMETER:
        return _in_parameter(binder, expr, left)
    if isinstance(more, FormRows):
        return _in_rows(binder, expr, left, more)
    if isinstance(left, RowValue):
        return None
    (first,) = expr.items
    if more.has_parameters:
        return _in_arguments(binder, expr, left, more)
    if not fits(more.texts, type_of(left)):
        return None
    operator, offsets = "<>" if expr.negated else "=", (expr.at, at_of(expr.arg), at_of(first))
    test = binder.operate(operator, left, binder.bind(first), *offsets)
    if not isinstance(test, Call):
        return None
    type = type_of(test.args[-1])

    def convert(scalar: Scalar, at: int) -> Scalar:
        return to_common(binder.planning, scalar, type, "IN", at)

    rest = column_values(more.texts, more.start, type, convert)
    if rest is None:
        return None
    return over_array(test, [test.args[-1], *(Literal(value, type) for value in rest)])


def _in_parameter(binder: "Binder", expr: ast.InList, left: Scalar | RowValue) -> Scalar:
    """Return IN of a list for which there is one parameter; raises LiteralDecides."""
    (first,) = expr.items
    operator, offsets = "<>" if expr.negated else "=", (expr.at, at_of(expr.arg), at_of(first))
    test = binder.operate(operator, left, binder.bind(first), *offsets)
    if isinstance(test, Call) and test.function in _WHOLE:
        value, item = test.args
        if isinstance(item, Parameter) and type_of(value) == item.type and is_plain(item.type):
            items = binder.planning.parameters.list_of(binder.planning, item)
            return Call(_WHOLE[test.function], (value, items), BOOL)
    raise LiteralDecides


def _in_rows(
    binder: "Binder", expr: ast.InList, left: Scalar | RowValue, more: FormRows
) -> Scalar | None:
    """Return IN of rows as a comparison with a query."""
    first, columns = expr.items[0], more.only_form
    is_where = binder.clause.name == "WHERE"  # where a subquery is allowed
    if columns is None or not isinstance(left, RowValue) or not isinstance(first, ast.Row):
        return None
    scalars = [item for item in left.items if not isinstance(item, RowValue)]
    if not is_where or not len(scalars) == len(left.items) == len(columns) == len(first.items):
        return None
    if more.has_parameters:
        if not are_compared_as_they_are(binder, scalars, first.items, columns):
            return None
    elif not all(map(_is_compared_as_it_is, scalars, first.items, columns)):
        return None
    values = ast.Query(ast.Values((first.items,), first.at, more), first.at)
    return binder.bind(ast.InQuery(expr.arg, values, expr.negated, expr.at))


def _is_compared_as_it_is(scalar: Scalar, cell: ast.Expression, texts: Literals) -> bool:
    """Whether the literals of a column are compared with a scalar in its type."""
    is_literal = isinstance(cell, ast.Number | ast.String)
    return texts is not None and is_literal and fits(texts, type_of(scalar))


def _in_arguments(
    binder: "Binder", expr: ast.InList, left: Scalar, more: ConstantList
) -> Scalar | None:
    """Return what `in_long_list` does, of a list that has parameters."""
    (first,) = expr.items
    found = None if isinstance(first, ast.Row) else in_arguments(binder, expr, left, more)
    if found is None:
        return None
    test, arguments = found
    left, right = test.args
    type = type_of(right)
    if test.function not in _WHOLE or type != type_of(left) or not is_plain(type):
        return None
    return Call(_WHOLE[test.function], (left, arguments), BOOL)
