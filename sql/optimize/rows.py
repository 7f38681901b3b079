"""Simplify relations that are plain lists of rows of scalars, such as VALUES.

Thousands of rows are too many nodes for the general rules, each of which traverses them several
times.
"""

from collections.abc import Sequence
from itertools import groupby

from foreshore.expr.columns import type_of
from foreshore.expr.ir import (
    Arguments,
    Call,
    Column,
    Constant,
    Environment,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Parameter,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.split import Test
from foreshore.expr.traversal import walk_scalars
from foreshore.sql.optimize import build
from foreshore.sql.optimize.scalars import substitute
from foreshore.sql.optimize.simplify import simplify
from foreshore.types import ColumnType, SqlType

Row = tuple[Scalar, ...]


def rows_of(relation: Relation) -> list[Row] | None:
    """Return the rows of `relation` as scalars without columns, or None for any other relation.

    Calls are not substituted into other calls, so a value computed once stays so.
    """
    return _rows_of(relation, {})


def _rows_of(relation: Relation, bound: dict[int, list[Row]]) -> list[Row] | None:
    match relation:
        case Join(inputs=()):
            return [()]
        case Map(input=input, scalars=scalars):
            below = _rows_of(input, bound)
            return None if below is None else _appended(below, scalars)
        case Project(input=input, outputs=outputs):
            below = _rows_of(input, bound)
            return None if below is None else [tuple([row[i] for i in outputs]) for row in below]
        case Union(inputs=inputs):
            found: list[Row] = []
            for input in inputs:
                part = _rows_of(input, bound)
                if part is None:
                    return None
                found += part
            return found
        case Let(number=number, value=value, body=body):  # rows that occur twice
            rows = _rows_of(value, bound)
            return None if rows is None else _rows_of(body, {**bound, number: rows})
        case LocalGet(number=number):
            return bound.get(number)
        case _:
            return None


def _appended(rows: list[Row], scalars: Sequence[Scalar]) -> list[Row] | None:
    """Return `rows` with `scalars` appended, which are over their columns and earlier scalars."""
    width = len(rows[0]) if rows else 0
    if any(column.index >= width for scalar in scalars for column in _columns(scalar)):
        return None
    for column in {c for s in scalars if not isinstance(s, Column) for c in _columns(s)}:
        cells = [row[column.index] for row in rows]
        if not all(_is_plain(cell) and type_of(cell) == column.type for cell in cells):
            return None
    return [(*row, *[substitute(scalar, row) for scalar in scalars]) for row in rows]


def _is_plain(scalar: Scalar) -> bool:
    """Return whether `scalar` may be computed any number of times."""
    match scalar:
        case Call(function="relabel", args=(inner,)):
            return _is_plain(inner)
        case _:
            return isinstance(scalar, Literal | Parameter | Arguments | Environment)


def _columns(scalar: Scalar) -> list[Column]:
    return [each for each in walk_scalars(scalar) if isinstance(each, Column)]


def of_rows(rows: Sequence[Row], fallible: Test) -> Relation:
    """Return the relation of `rows`, of which there is at least one, with simplified scalars."""
    simplified = [tuple([simplify(scalar, (), fallible) for scalar in row]) for row in rows]
    parts: list[Relation] = []
    for types, alike in groupby(simplified, _types_of_constants):
        if types is None:
            parts += (build.map_(build.UNIT, row) for row in alike)
        else:
            parts.append(_constant(types, list(alike)))
    return build.union(parts)


def _types_of_constants(row: Row) -> tuple[SqlType, ...] | None:
    """Return the types of a row of constants, None of any other row."""
    literals = all(isinstance(scalar, Literal) for scalar in row)
    return tuple(map(type_of, row)) if literals else None


def _constant(types: Sequence[SqlType], rows: Sequence[Row]) -> Constant:
    values = [tuple([s.value for s in row if isinstance(s, Literal)]) for row in rows]
    nullable = [any(row[i] is None for row in values) for i in range(len(types))]
    return Constant(tuple((row, 1) for row in values), tuple(map(ColumnType, types, nullable)))
