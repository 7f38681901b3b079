"""Rows as JSON: row_to_json(t), to_jsonb(t), json_agg(t) and the like.

A row is not a scalar (`row_values.py`), so it is made an object of its columns where it is bound.
"""

from typing import TYPE_CHECKING

from foreshore.errors import DatatypeMismatch, FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Case, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.coerce import coerce, to_known
from foreshore.sql.bind.records import as_row, as_scalar
from foreshore.sql.bind.row_values import RowValue
from foreshore.types import BOOL, JSON, JSONB, TEXT

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

# Functions of one row, and functions in whose arguments rows become documents.
_OF_ROW = {"row_to_json": "json", "to_json": "json", "to_jsonb": "jsonb"}
_WITHIN = {
    f"{kind}_{rest}": kind for kind in ("json", "jsonb") for rest in ("build_object", "build_array")
}
AGGREGATES = {
    f"{kind}_{rest}": kind for kind in ("json", "jsonb") for rest in ("agg", "object_agg")
}


def takes_rows(name: str) -> bool:
    """Return whether a function makes JSON of rows."""
    return name in _OF_ROW or name in _WITHIN


def bind_arguments(
    binder: "Binder", name: str, args: tuple[ast.Expression, ...]
) -> tuple[tuple[Scalar, ...], bool]:
    """Return the arguments of such a function, and whether the first is the result already."""
    values = tuple(_whole(binder.bind_value(arg), arg) for arg in args)
    first = values[0] if values else None
    if name in _OF_ROW and len(values) == 1 and isinstance(first, RowValue):
        return (row_as_json(binder, first, _OF_ROW[name]),), True
    if name == "row_to_json" and len(values) == 2 and isinstance(first, RowValue):
        return (_in_lines(binder, row_as_json(binder, first, "json"), values[1], args[1].at),), True
    kind = _WITHIN.get(name)
    scalars: list[Scalar] = []
    for value in values:
        if isinstance(value, RowValue):
            if kind is None:
                scalars.append(as_scalar(binder, value))
                continue
            value = row_as_json(binder, value, kind)
        scalars.append(value)
    return tuple(scalars), False


def _in_lines(binder: "Binder", document: Scalar, pretty: Scalar | RowValue, at: int) -> Scalar:
    """Return a document with a line for each column where `pretty` holds."""
    assert not isinstance(pretty, RowValue)
    wanted = coerce(binder.planning, pretty, BOOL, "implicit", at)
    if wanted is None:
        raise DatatypeMismatch("argument of row_to_json must be type boolean", position=at + 1)
    lines = Call("json_in_lines(json)", (document,), JSON)
    plain = Case(((Call("is_not_null", (wanted,), BOOL), document),), Literal(None, JSON), JSON)
    return Case(((wanted, lines),), plain, JSON)


def _whole(value: Scalar | RowValue, arg: ast.Expression) -> Scalar | RowValue:
    """Return a record as a row."""
    if isinstance(value, RowValue) or type_of(value).name != "record":
        return value
    return as_row(value, arg.at)


def row_as_json(binder: "Binder", row: RowValue, kind: str) -> Scalar:
    """Return a row as an object with its columns, or f1, f2, ... of a row without names."""
    type = JSON if kind == "json" else JSONB
    names = row.names or tuple(f"f{i}" for i in range(1, len(row.items) + 1))
    args: list[Scalar] = []
    for name, item, at in zip(names, row.items, row.offsets, strict=True):
        args += [Literal(name, TEXT), to_known(binder.planning, item, at)]
    found: Scalar = Literal("{}", type)
    if args:
        function = "_json_of_row" if kind == "json" else "jsonb_build_object"
        found = binder.call(function, args, row.at)
    if not row.outer:
        return found
    if row.present is None:
        raise FeatureNotSupported(
            "JSON of whole rows of an outer join's nullable side is not supported",
            hint="Declare a column of the table NOT NULL.",
            position=row.at + 1,
        )
    is_null = Call("is_null", (row.present,), BOOL)
    return Case(((is_null, Literal(None, type)),), found, type)
