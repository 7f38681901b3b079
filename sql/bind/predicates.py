"""Bind predicates: IS, IS DISTINCT FROM, LIKE, SIMILAR TO, BETWEEN and IN with a list."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import select_common_type
from foreshore.expr.ir import And, Call, Or, Scalar
from foreshore.expr.split import columns_used
from foreshore.sql import ast
from foreshore.sql.bind.coerce import (
    is_unknown,
    to_common,
    to_known,
)
from foreshore.sql.bind.long_lists import LONG_LIST, in_long_list, over_array
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.records import built_row, matched, null_test
from foreshore.sql.bind.row_values import (
    RowValue,
    are_built,
    conjunction,
    disjunction,
    distinct_rows,
)
from foreshore.types import BOOL, UNKNOWN, without_modifiers

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

Value = Scalar | RowValue


def bind_is_distinct(binder: "Binder", expr: ast.IsDistinct) -> Scalar:
    """Return `a IS [NOT] DISTINCT FROM b`, of scalars or rows."""
    left, right = binder.bind_value(expr.left), binder.bind_value(expr.right)
    name = "is not distinct from" if expr.negated else "is distinct from"
    if are_built(left, right):
        return distinct_rows(binder, name, left, right, expr.at)
    left, right = matched(binder, left, right, expr.at)
    return binder.call(name, (left, right), expr.at, (at_of(expr.left), at_of(expr.right)))


def bind_is(binder: "Binder", expr: ast.Is) -> Scalar:
    """Return IS [NOT] NULL of a scalar or row, or a test of a boolean."""
    if expr.what != "null":
        shown = ("IS NOT " if expr.negated else "IS ") + expr.what.upper()
        arg = binder.boolean(expr.arg, shown)
        return Call(f"is_{'not_' if expr.negated else ''}{expr.what}", (arg,), BOOL)
    key = "is_not_null" if expr.negated else "is_null"
    value = binder.bind_value(expr.arg)
    if isinstance(value, RowValue):
        # A composite among the columns is a value, even if all of its own columns are NULL.
        items = [to_known(binder.planning, item, 0) for item in value.items]
        return conjunction([Call(key, (item,), BOOL) for item in items])
    scalar = to_known(binder.planning, value, 0)
    if type_of(scalar).name == "record":
        return null_test(key, scalar)
    return Call(key, (scalar,), BOOL)


def bind_like(binder: "Binder", expr: ast.Like) -> Scalar:
    """Return LIKE, ILIKE or SIMILAR TO, with or without ESCAPE."""
    left, pattern = binder.bind(expr.left), binder.bind(expr.right)
    left_at, right_at = at_of(expr.left), at_of(expr.right)
    if expr.kind == "similar":
        args = [pattern] if expr.escape is None else [pattern, binder.bind(expr.escape)]
        pattern = binder.call("similar_to_escape", args, expr.at)
        operator = "~"
    else:
        if expr.escape is not None:
            pattern = binder.call("like_escape", (pattern, binder.bind(expr.escape)), expr.at)
        operator = "~~*" if expr.kind == "ilike" else "~~"
    if expr.negated:
        operator = "!" + operator
    return binder.call(operator, (left, pattern), expr.at, (left_at, right_at))


def bind_between(binder: "Binder", expr: ast.Between) -> Scalar:
    """Return BETWEEN [SYMMETRIC] as comparisons."""
    arg, low, high = (binder.bind(e) for e in (expr.arg, expr.low, expr.high))
    at, offsets = expr.at, (at_of(expr.arg), at_of(expr.low))
    high_offsets = (offsets[0], at_of(expr.high))

    def inside(low: Scalar, high: Scalar) -> Scalar:
        if expr.negated:
            return Or(
                (
                    binder.call("<", (arg, low), at, offsets),
                    binder.call(">", (arg, high), at, offsets),
                )
            )
        return And(
            (
                binder.call(">=", (arg, low), at, offsets),
                binder.call("<=", (arg, high), at, high_offsets),
            )
        )

    if not expr.symmetric:
        return inside(low, high)
    both = (inside(low, high), inside(high, low))
    return And(both) if expr.negated else Or(both)


def _rows_compared(
    expr: ast.InList, left: Value, row: RowValue, values: Sequence[Value]
) -> list[tuple[Value, Value]]:
    """Return what is compared of `row IN (...)`, with rows that ROW has built as such.

    Several values of the type of the left side, `ROW(...)::type`, and without columns are an array
    in PostgreSQL, whose elements compare as values of the type: NULL is equal to NULL in them.
    """
    arrayed = [not isinstance(each, RowValue) and not columns_used(each) for each in values]
    of_array = [
        type_of(each)
        for each, is_one in zip(values, arrayed, strict=True)
        if is_one and not isinstance(each, RowValue)
    ]
    is_array = not isinstance(left, RowValue) and {*of_array} - {UNKNOWN} == {type_of(left)}
    if len(of_array) < 2 or not is_array:
        arrayed = [False] * len(values)
    pairs: list[tuple[Value, Value]] = []
    for item, value, is_one in zip(expr.whole, values, arrayed, strict=True):
        built = value if is_one else built_row(item, value)
        pairs.append((row, built) if isinstance(built, RowValue) else (left, value))
    return pairs


def _of_common_type(
    binder: "Binder", left: Scalar, values: list[tuple[Value, int]]
) -> list[tuple[Value, int]]:
    """Return the items of IN, those without columns as the common type of them and the left side.

    They keep their own types if there is no such type, or only one of them.
    """
    items = [value for value, _ in values if not isinstance(value, RowValue)]
    constants = [item for item in items if not columns_used(item)]
    if len(items) < len(values) or len(constants) < 2 or all(map(is_unknown, constants)):
        return values
    common = select_common_type([type_of(left), *map(type_of, constants)])
    if common is None:
        return values
    found: list[tuple[Value, int]] = []
    for item, (_, at) in zip(items, values, strict=True):
        if columns_used(item):
            found.append((item, at))
        else:
            type = without_modifiers(common) if is_unknown(item) else common
            found.append((to_common(binder.planning, item, type, "IN", at), at))
    return found


def bind_in_list(binder: "Binder", expr: ast.InList) -> Scalar:
    """Return `a IN (b, ...)` as comparisons, or as one with an array if there are many."""
    left = binder.bind_value(expr.arg)
    left_at = at_of(expr.arg)
    operator, row = "<>" if expr.negated else "=", built_row(expr.arg, left)
    if expr.more is not None and (long := in_long_list(binder, expr, left, expr.more)) is not None:
        return long
    values = [(binder.bind_value(item), at_of(item)) for item in expr.whole]
    if not isinstance(left, RowValue):
        values = _of_common_type(binder, left, values)
    pairs = [(left, value) for value, _ in values]
    if isinstance(row, RowValue):
        pairs = _rows_compared(expr, left, row, [value for value, _ in values])
    if len(values) > LONG_LIST and not isinstance(row, RowValue):
        first = binder.operate(operator, left, values[0][0], expr.at, left_at, values[0][1])
        whole = over_array(first, [value for value, _ in values])
        if whole is not None:
            return whole
    tests = [
        binder.operate(operator, *pair, expr.at, left_at, at)
        for pair, (_, at) in zip(pairs, values, strict=True)
    ]
    if len(tests) > LONG_LIST:
        compared = [test.args[1] for test in tests if isinstance(test, Call) and test.args[1:]]
        whole = over_array(tests[0], compared, tests)
        if whole is not None:
            return whole
    return conjunction(tests) if expr.negated else disjunction(tests)
