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
from foreshore.sql.ast.constant_list import ConstantList, parameters
from foreshore.sql.ast.form_rows import Literals
from foreshore.sql.bind.form_rows import Convert, bind_cell
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.types import INT8, UNKNOWN, ColumnType, SqlType, array_of

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

ConvertOf = Callable[[int, Scalar, int], Convert]  # of a column, by its first scalar and its offset


def bind_rows(
    binder: "Binder",
    first: Sequence[ast.Expression],
    columns: Sequence[Literals],
    convert_of: ConvertOf,
    *,
    numbered: bool = False,
) -> tuple[FlatMap, list[Scalar]] | None:
    """Return the rows of a form, and over them its columns, converted.

    `numbered`: the rows have their numbers, from 1, in a column more.
    """
    arrays: list[Scalar] = []
    elements: list[SqlType] = []
    scalars: list[Scalar] = []
    for i, (expr, texts) in enumerate(zip(first, columns, strict=True)):
        if texts is None:
            return None
        scalar, at = binder.bind(expr), at_of(expr)
        convert = convert_of(i, scalar, at)
        converted = convert(scalar, at)
        type = type_of(converted)
        if texts[0][0] == "$":
            found = parameters(texts)
            if found is None or not _is_parameter(expr):
                return None
            argument = argument_column(binder.planning, found[0], converted)
            if argument is None:
                return None
            array, parameter = argument
            column = Column(i, parameter.type)
            places: dict[Scalar, Scalar] = {parameter: column}
            scalars.append(bind_scalar(converted, places.get))
            arrays.append(array)
            elements.append(parameter.type)
            continue
        if type.element is not None or any(text[0] == "$" for text in texts):
            return None
        cell = bind_cell(binder, expr, texts, type, convert)
        if cell is None:
            return None
        arrays.append(Literal(tuple(cell.data), array_of(type)))
        elements.append(type)
        scalars.append(Column(i, type))
    types = tuple(map(ColumnType, elements)) + (ColumnType(INT8, False),) * numbered
    return FlatMap(Join(()), IN_STEP, tuple(arrays), types), scalars


def with_columns(rows: FlatMap, scalars: Sequence[Scalar]) -> Relation:
    """Return the columns `scalars` over rows, then the numbers if they have any."""
    width = len(rows.columns)
    if all(isinstance(scalar, Column) for scalar in scalars):
        return rows
    places = (*range(width, width + len(scalars)), *range(len(scalars), width))
    return Project(MapRows(rows, tuple(scalars)), places)


def argument_column(
    planning: Planning, numbers: Sequence[int], scalar: Scalar
) -> tuple[Arguments, Parameter] | None:
    """Return parameters as an array, and the first of them, which is used in `scalar`.

    There it is alone, or in a cast. None if not all are of one type.
    """
    leaves = [each for each in walk_scalars(scalar) if isinstance(each, Parameter)]
    if len(leaves) != 1:
        return None
    (leaf,) = leaves
    if leaf.type == UNKNOWN or leaf.type.element:
        return None
    if not planning.parameters.learn_all(numbers, leaf.type):
        return None
    return Arguments(tuple(numbers), array_of(leaf.type)), leaf


def _is_parameter(expr: ast.Expression) -> bool:
    """Return whether `expr` is a parameter, or one that is cast."""
    return isinstance(expr.arg if isinstance(expr, ast.CastTo) else expr, ast.ParameterRef)


def _is_cast_to(expr: ast.Expression, type: ast.TypeName | None) -> bool:
    """Return whether `expr` is a parameter, cast to `type` or to none."""
    if not isinstance(expr, ast.CastTo):
        return type is None and isinstance(expr, ast.ParameterRef)
    same = type is not None and replace(expr.type, at=0) == replace(type, at=0)
    return same and isinstance(expr.arg, ast.ParameterRef)


def in_arguments(
    binder: "Binder", expr: ast.InList, left: Scalar, more: ConstantList
) -> tuple[Call, Arguments] | None:
    """Return the comparison with the first item of IN, and all its items, which are parameters."""
    (first,) = expr.items
    operator, offsets = "<>" if expr.negated else "=", (expr.at, at_of(expr.arg), at_of(first))
    test = binder.operate(operator, left, binder.bind(first), *offsets)
    if not isinstance(test, Call) or not isinstance(test.args[-1], Parameter):
        return None
    found, parameter = parameters(more.texts), test.args[-1]
    if found is None or not _is_cast_to(first, more.types.get(found[1])):
        return None
    argument = argument_column(binder.planning, [parameter.number, *found[0]], parameter)
    return None if argument is None else (test, argument[0])


def are_compared_as_they_are(
    binder: "Binder",
    left: Sequence[Scalar],
    first: Sequence[ast.Expression],
    columns: Sequence[Literals],
) -> bool:
    """Whether rows of parameters are compared with scalars in the types of these.

    The parameters have these types from then on.
    """
    if len(columns) != len(left) or len(first) != len(left):
        return False
    for scalar, expr, texts in zip(left, first, columns, strict=True):
        found = None if texts is None or not _is_parameter(expr) else parameters(texts)
        if found is None:
            return False
        at = at_of(expr)
        test = binder.operate("=", scalar, binder.bind(expr), at, at, at)
        if not isinstance(test, Call) or test.args[0] != scalar:
            return False
        parameter = test.args[1]
        if not isinstance(parameter, Parameter) or parameter.type != type_of(scalar):
            return False
        if argument_column(binder.planning, found[0], parameter) is None:
            return False
    return True
