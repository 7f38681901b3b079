"""Bind rows as values: rows that are not taken apart become records.

SELECT t FROM t            row(any) over the columns of t
(r).x, (r).*               column(anyrecord,int4)
ROW(1, 'a') = r            = over the stored forms
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    UndefinedColumn,
    WrongObjectType,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import ResolvedTable
from foreshore.expr.ir import Call, Case, Column, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.coerce import coerce, to_known
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.record_columns import column_at, columns_of_record, make_record
from foreshore.sql.bind.row_values import RowValue
from foreshore.types import BOOL, SqlType, record_of

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder


def as_scalar(binder: "Binder", value: Scalar | RowValue) -> Scalar:
    """Return a row as a record; a scalar as it is."""
    if not isinstance(value, RowValue):
        return value
    items = tuple(
        to_known(binder.planning, item, at)
        for item, at in zip(value.items, value.offsets, strict=True)
    )
    names = value.names or tuple(f"f{i}" for i in range(1, len(items) + 1))
    type = record_of(names, tuple(map(type_of, items)))
    found = make_record(items, type)
    if not value.outer:
        return found
    if value.present is None:
        raise FeatureNotSupported(
            "whole rows of an outer join's nullable side are not supported as values",
            hint="Declare a column of the table NOT NULL.",
            position=value.at + 1,
        )
    is_null = Call("is_null", (value.present,), BOOL)
    return Case(((is_null, Literal(None, type)),), found, type)


def built_row(expr: ast.Expression, value: Scalar | RowValue) -> Scalar | RowValue:
    """Return the row of `ROW(...)::type` for IN, where it compares as one built by ROW does."""
    node = expr
    while isinstance(node, ast.CastTo):
        node = node.arg
    if isinstance(value, RowValue) or not isinstance(node, ast.Row):
        return value
    if type_of(value).name != "record":
        return value
    at, items = at_of(expr), columns_of_record(value)
    return RowValue(items, (at,) * len(items), at)


def column_named(value: Scalar | RowValue, name: str, at: int) -> Scalar:
    """Return `(value).name`."""
    if isinstance(value, RowValue):
        names = value.names or tuple(f"f{i}" for i in range(1, len(value.items) + 1))
        if name in names:
            return value.items[names.index(name)]
        raise UndefinedColumn(
            f'could not identify column "{name}" in record data type', position=at + 1
        )
    type = type_of(value)
    check_composite(type, name, at)
    found = [place for place, member in enumerate(type.members) if member.name == name]
    if not found:
        message = f'could not identify column "{name}" in record data type'
        if type.defined is not None:
            message = f'column "{name}" not found in data type {type}'
        raise UndefinedColumn(message, position=at + 1)
    return column_at(value, found[0])


def expanded(binder: "Binder", expr: ast.Field) -> tuple[tuple[Scalar, str], ...]:
    """Return the columns of `(record).*`, with their names."""
    value = binder.bind_value(expr.arg)
    if isinstance(value, RowValue):
        names = value.names or tuple(f"f{i}" for i in range(1, len(value.items) + 1))
        items = tuple(
            to_known(binder.planning, item, at)
            for item, at in zip(value.items, value.offsets, strict=True)
        )
        return tuple(zip(items, names, strict=True))
    check_composite(type_of(value), None, expr.at)
    names = tuple(member.name for member in type_of(value).members)
    return tuple(zip(columns_of_record(value), names, strict=True))


def as_row(record: Scalar, at: int) -> RowValue:
    """Return a record as the row of its columns."""
    columns = columns_of_record(record)
    names = tuple(member.name for member in type_of(record).members)
    return RowValue(columns, (at,) * len(columns), at, True, True, record, names)


def check_composite(type: SqlType, name: str | None, at: int) -> None:
    """Raise WrongObjectType unless values of `type` have columns."""
    if type.name != "record":
        raise WrongObjectType(
            f"column notation .{name or '*'} applied to type {type}, which is not a composite type",
            position=at + 1,
        )


def matched(
    binder: "Binder", left: Scalar | RowValue, right: Scalar | RowValue, at: int
) -> tuple[Scalar, Scalar]:
    """Return two values to compare; rows as records of the same types."""
    first, second = as_scalar(binder, left), as_scalar(binder, right)
    if type_of(first).name != "record" or type_of(second).name != "record":
        return first, second
    sides = type_of(first).members, type_of(second).members
    if len(sides[0]) != len(sides[1]):
        raise DatatypeMismatch(
            "cannot compare record types with different numbers of columns", position=at + 1
        )
    if isinstance(right, RowValue):
        fitted = coerce(binder.planning, second, type_of(first), "implicit", at)
        second = second if fitted is None else fitted
    elif isinstance(left, RowValue):
        fitted = coerce(binder.planning, first, type_of(second), "implicit", at)
        first = first if fitted is None else fitted
    sides = type_of(first).members, type_of(second).members
    for place, (a, b) in enumerate(zip(*sides, strict=True), 1):
        if str(a.type) != str(b.type):
            raise DatatypeMismatch(
                f"cannot compare dissimilar column types {a.type} and {b.type} "
                f"at record column {place}",
                position=at + 1,
            )
    return first, second


def null_test(key: str, scalar: Scalar) -> Scalar:
    """Return IS [NOT] NULL of a record, which is about its columns."""
    return Call(f"record_{key}(anyrecord)", (scalar,), BOOL)


def of_composites(found: ResolvedTable) -> ResolvedTable:
    """Return a function over composites with their columns instead."""
    columns = columns_of_record(Column(len(found.arg_types), found.element.type))
    names = tuple(member.name for member in found.element.type.members)
    return replace(found, names=names, outputs=columns)
