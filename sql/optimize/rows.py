"""Relations that are nothing but rows of scalars, as VALUES is: these alone can become simpler.

A list of thousands of rows is so many nodes, over each of which every rule would go several times.
"""

from collections.abc import Sequence
from itertools import groupby

from foreshore.expr.ir import (
    Column,
    Constant,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Project,
    Relation,
    Scalar,
    Union,
    type_of,
    walk_scalars,
)
from foreshore.expr.split import Test
from foreshore.sql.optimize import build
from foreshore.sql.optimize.simplify import simplify
from foreshore.types import ColumnType, SqlType

Row = tuple[Scalar, ...]


def rows_of(relation: Relation) -> list[Row] | None:
    """Return the rows of `relation`, as scalars without columns; None if it is anything else.

    No scalar is put into another: what is computed once stays so.
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
        case Let(number=number, value=value, body=body):  # of rows that are there twice
            rows = _rows_of(value, bound)
            return None if rows is None else _rows_of(body, {**bound, number: rows})
        case LocalGet(number=number):
            return bound.get(number)
        case _:
            return None


def _appended(rows: list[Row], scalars: Sequence[Scalar]) -> list[Row] | None:
    width = len(rows[0]) if rows else 0
    for scalar in scalars:
        if isinstance(scalar, Column) and scalar.index < width:
            continue
        if any(isinstance(each, Column) for each in walk_scalars(scalar)):
            return None
    return [
        (*row, *(row[s.index] if isinstance(s, Column) else s for s in scalars)) for row in rows
    ]


def of_rows(rows: Sequence[Row], fallible: Test) -> Relation:
    """Return the relation of `rows`, of which there are some, with their scalars simplified."""
    simplified = [tuple([simplify(scalar, (), fallible) for scalar in row]) for row in rows]
    parts: list[Relation] = []
    for types, alike in groupby(simplified, _types_of_constants):
        if types is None:
            parts += (build.map_(build.UNIT, row) for row in alike)
        else:
            parts.append(_constant(types, list(alike)))
    return build.union(parts)


def _types_of_constants(row: Row) -> tuple[SqlType, ...] | None:
    """Return the types of a row of constants; None of any other."""
    literals = all(isinstance(scalar, Literal) for scalar in row)
    return tuple(map(type_of, row)) if literals else None


def _constant(types: Sequence[SqlType], rows: Sequence[Row]) -> Constant:
    values = [tuple([s.value for s in row if isinstance(s, Literal)]) for row in rows]
    nullable = [any(row[i] is None for row in values) for i in range(len(types))]
    return Constant(tuple((row, 1) for row in values), tuple(map(ColumnType, types, nullable)))
