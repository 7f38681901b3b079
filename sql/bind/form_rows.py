"""Bind rows of VALUES by their forms; see `sql/ast/form_rows.py`.

    VALUES (1, '2024-01-01'::date), (2, now()), (3, '2024-01-02'::date)

A column of a form is bound over all of its literals at once, and a row that is kept alone as any
other. So the rows are pieces: rows in sequence of which a cell is a column of values, or a scalar
that is the same for all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from foreshore.expr.columns import type_of
from foreshore.expr.ir import Column, Constant, Join, Literal, Map, Project, Relation, Scalar, Union
from foreshore.sql import ast
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.bind.constant_columns import column_values, kinds_of
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.type_names import domain_of_name, type_of_name
from foreshore.types import ColumnType, Datum, SqlType

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

Convert = Callable[[Scalar, int], Scalar]


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values of a cell in each of a piece's rows."""

    data: Sequence[Datum]
    type: SqlType

    def part(self, start: int, count: int) -> "ColumnValues":
        """Return the values of some rows."""
        if count == len(self.data):
            return self
        return ColumnValues(self.data[start : start + count], self.type)


Cell: TypeAlias = ColumnValues | Scalar
Piece: TypeAlias = tuple[int, Sequence[Cell]]  # the number of rows, and their cells


def leaf_of(expr: ast.Expression) -> ast.Expression:
    """Return the literal of a cell, without casts and signs."""
    while True:
        match expr:
            case ast.CastTo(arg=arg):
                expr = arg
            case ast.Operation(left=None, right=right):
                expr = right
            case _:
                return expr


def over_leaf(binder: "Binder", expr: ast.Expression, scalar: Scalar) -> Scalar:
    """Return a cell with a scalar in the place of its literal."""
    match expr:
        case ast.CastTo(arg=arg):
            return binder.cast_value(expr, over_leaf(binder, arg, scalar))
        case ast.Operation(operator=operator, left=None, right=right, at=at):
            return binder.call(operator, (over_leaf(binder, right, scalar),), at, (at_of(right),))
    return scalar


def kinds_of_cell(binder: "Binder", expr: ast.Expression, texts: list[str]) -> list[Scalar]:
    """Return a scalar of each type that a cell has in the rows of a form."""
    kinds = kinds_of(texts[:1] if isinstance(expr, ast.CastTo) else texts)
    return [over_leaf(binder, expr, kind) for kind in kinds]


def bind_cell(
    binder: "Binder",
    expr: ast.Expression,
    texts: list[str],
    type: SqlType,
    convert: Convert,
) -> ColumnValues | None:
    """Return a cell in all rows of a form, converted to a `type`; None if that has to be by row."""
    leaf = leaf_of(expr)
    if not isinstance(leaf, ast.Number | ast.String | ast.Boolean | ast.Null):
        return None
    if binder.planning.keeps_text and leaf is not expr:
        return None  # the name of each type may have to be qualified
    values = column_values(
        texts,
        at_of(expr),
        type,
        lambda scalar, at: convert(over_leaf(binder, expr, scalar), at),
        _types_of_casts(binder, expr),
    )
    return None if values is None else ColumnValues(values, type)


def _types_of_casts(binder: "Binder", expr: ast.Expression) -> list[SqlType] | None:
    """Return the types through which a cell's literal is cast; None if it has a sign, or more."""
    found = []
    while isinstance(expr, ast.CastTo):
        if domain_of_name(expr.type, binder.planning) is not None:
            return None
        found.append(type_of_name(expr.type, binder.planning))
        expr = expr.arg
    return None if isinstance(expr, ast.Operation) else found


def pieces_of(more: FormRows, kept: Sequence[Sequence[Cell]]) -> list[Piece]:
    """Return the pieces of a list by the cells of the rows that are kept, and of their forms."""
    done = [0] * len(kept)
    pieces: list[Piece] = []
    for number, count in more.runs:
        cells, start = kept[number], done[number]
        done[number] += count
        parts = [e.part(start, count) if isinstance(e, ColumnValues) else e for e in cells]
        pieces.append((count, parts))
    return pieces


def relation_of(pieces: Sequence[Piece]) -> Relation:
    """Return the rows of pieces, in order."""
    types = [_type_of(cell) for cell in pieces[0][1]]
    inputs: list[Relation] = []
    for are_constants, group in groupby(pieces, key=lambda piece: all(map(_is_constant, piece[1]))):
        if are_constants:
            inputs.append(_constant(list(group), types))
        else:
            inputs += [_computed(count, cells) for count, cells in group]
    return inputs[0] if len(inputs) == 1 else Union(tuple(inputs))


def _type_of(cell: Cell) -> SqlType:
    return cell.type if isinstance(cell, ColumnValues) else type_of(cell)


def _is_constant(cell: Cell) -> bool:
    return isinstance(cell, ColumnValues | Literal)


def _values(count: int, cell: Cell) -> Sequence[Datum]:
    """Return the values of a cell that is constant."""
    if isinstance(cell, ColumnValues):
        return cell.data
    assert isinstance(cell, Literal), cell
    return [cell.value] * count


def _constant(pieces: Sequence[Piece], types: Sequence[SqlType]) -> Constant:
    """Return rows that have values only."""
    columns: list[list[Datum]] = [[] for _ in types]
    for count, cells in pieces:
        for column, cell in zip(columns, cells, strict=True):
            column += _values(count, cell)
    nullable = [None in column for column in columns]
    return Constant(_rows(columns), tuple(map(ColumnType, types, nullable)))


def _rows(columns: Sequence[Sequence[Datum]]) -> tuple[tuple[tuple[Datum, ...], int], ...]:
    return tuple([(row, 1) for row in zip(*columns, strict=True)])


def _computed(count: int, cells: Sequence[Cell]) -> Relation:
    """Return rows some of whose cells are scalars."""
    given = [cell for cell in cells if isinstance(cell, ColumnValues)]
    types = [ColumnType(each.type, None in each.data) for each in given]
    columns = iter([Column(i, each.type, each.nullable) for i, each in enumerate(types)])
    scalars = tuple([next(columns) if isinstance(e, ColumnValues) else e for e in cells])
    if not given:
        return Map(Join(()) if count == 1 else Constant((((), 1),) * count, ()), scalars)
    width = len(given)
    mapped = Map(Constant(_rows([each.data for each in given]), tuple(types)), scalars)
    return Project(mapped, tuple(range(width, width + len(scalars))))
