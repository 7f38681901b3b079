"""Bind long lists with parameters column by column; see `sql/parse/long_lists.py`.

    VALUES ($1, $2, 'new'), ($3, $4, 'old'), ...    unnest({$1, $3}, {$2, $4}, '{new,old}')
    x IN ($1, $2, ...)                              x = ANY ({$1, $2})

A column of parameters is one array of them, so the plan does not grow with the list. None is
returned where a column has parameters and other constants, or parameters of several types: then the
caller binds all rows one by one.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foreshore.expr.columns import type_of
from foreshore.expr.ir import (
    IN_STEP,
    Arguments,
    Call,
    Column,
    FlatMap,
    Join,
    Literal,
    Parameter,
    Project,
    Relation,
    Scalar,
)
from foreshore.expr.ir import Map as MapRows
from foreshore.expr.scalars import bind_scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.sql import ast
from foreshore.sql.ast.constant_rows import ConstantRows, parameters
from foreshore.sql.bind.constant_rows import column_values
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.types import INT8, UNKNOWN, ColumnType, SqlType, array_of

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

Convert = Callable[[Scalar, int], Scalar]
ConvertOf = Callable[[int, Scalar, int], Convert]  # of a column, by its first scalar and its offset


def bind_rows(
    binder: "Binder",
    first: Sequence[ast.Expression],
    more: ConstantRows,
    convert_of: ConvertOf,
    *,
    numbered: bool = False,
) -> tuple[FlatMap, list[Scalar]] | None:
    """Return the rows of a list, and over them its columns, converted.

    `numbered`: the rows have their numbers, from 1, in a column more.
    """
    arrays: list[Scalar] = []
    elements: list[SqlType] = []
    scalars: list[Scalar] = []
    for i, expr in enumerate(first):
        scalar, at = binder.bind(expr), at_of(expr)
        convert = convert_of(i, scalar, at)
        converted = convert(scalar, at)
        type = type_of(converted)
        if more.columns[i][0][0] == "$":
            found = argument_column(binder.planning, expr, more, i, converted)
            if found is None:
                return None
            array, parameter = found
            column = Column(i, parameter.type)
            places: dict[Scalar, Scalar] = {parameter: column}
            scalars.append(bind_scalar(converted, places.get))
            arrays.append(array)
            elements.append(parameter.type)
            continue
        if not isinstance(converted, Literal) or type.element is not None or _has_argument(more, i):
            return None
        rest = column_values(more, i, type, convert)
        if rest is None:
            return None
        arrays.append(Literal((converted.value, *rest), array_of(type)))
        elements.append(type)
        scalars.append(Column(i, type))
    columns = tuple(map(ColumnType, elements)) + (ColumnType(INT8, False),) * numbered
    return FlatMap(Join(()), IN_STEP, tuple(arrays), columns), scalars


def _has_argument(rows: ConstantRows, column: int) -> bool:
    return any(text[0] == "$" for text in rows.columns[column])


def with_columns(rows: FlatMap, scalars: Sequence[Scalar]) -> Relation:
    """Return the columns `scalars` over rows, then the numbers if they have any."""
    width = len(rows.columns)
    if all(isinstance(scalar, Column) for scalar in scalars):
        return rows
    places = (*range(width, width + len(scalars)), *range(len(scalars), width))
    return Project(MapRows(rows, tuple(scalars)), places)


def argument_column(
    planning: Planning, first: ast.Expression, rows: ConstantRows, column: int, scalar: Scalar
) -> tuple[Arguments, Parameter] | None:
    """Return the parameters of a column of a list as an array, and the first of them.

    The first is written as `first`, and used in `scalar`: alone, or in a cast. None if not all of
    the column are parameters of one type.
    """
    found = parameters(rows.columns[column])
    leaves = [each for each in walk_scalars(scalar) if isinstance(each, Parameter)]
    if found is None or len(leaves) != 1:
        return None
    (numbers, cast), (leaf,) = found, leaves
    if not _is_cast_to(first, rows.types.get(cast)) or leaf.type == UNKNOWN or leaf.type.element:
        return None
    if not planning.parameters.learn_all(numbers, leaf.type):
        return None
    return Arguments((leaf.number, *numbers), array_of(leaf.type)), leaf


def _is_cast_to(expr: ast.Expression, type: ast.TypeName | None) -> bool:
    """Return whether `expr` is a parameter, cast to `type` or to none."""
    if not isinstance(expr, ast.CastTo):
        return type is None and isinstance(expr, ast.ParameterRef)
    same = type is not None and replace(expr.type, at=0) == replace(type, at=0)
    return same and isinstance(expr.arg, ast.ParameterRef)


def in_arguments(
    binder: "Binder", expr: ast.InList, left: Scalar, more: ConstantRows
) -> tuple[Call, Arguments] | None:
    """Return the comparison with the first item of IN, and all its items, which are parameters."""
    (first,) = expr.items
    operator, offsets = "<>" if expr.negated else "=", (expr.at, at_of(expr.arg), at_of(first))
    test = binder.operate(operator, left, binder.bind(first), *offsets)
    if not isinstance(test, Call) or not isinstance(test.args[-1], Parameter):
        return None
    found = argument_column(binder.planning, first, more, 0, test.args[-1])
    return None if found is None else (test, found[0])


def are_compared_as_they_are(
    binder: "Binder",
    left: Sequence[Scalar],
    first: Sequence[ast.Expression],
    more: ConstantRows,
) -> bool:
    """Whether rows of parameters are compared with scalars in the types of these.

    The parameters have these types from then on.
    """
    if more.width != len(left) or len(first) != len(left):
        return False
    for i, (scalar, expr) in enumerate(zip(left, first, strict=True)):
        at = at_of(expr)
        test = binder.operate("=", scalar, binder.bind(expr), at, at, at)
        if not isinstance(test, Call) or test.args[0] != scalar:
            return False
        parameter = test.args[1]
        if not isinstance(parameter, Parameter) or parameter.type != type_of(scalar):
            return False
        if argument_column(binder.planning, expr, more, i, parameter) is None:
            return False
    return True
