"""Bind functions that return records of JSON: their columns are those of a definition list or type.

jsonb_to_recordset(j) AS t(a int, b text)
jsonb_populate_record(NULL::pair, j)
"""

from typing import TYPE_CHECKING

from foreshore.errors import DatatypeMismatch, SyntaxError_
from foreshore.expr.columns import type_of
from foreshore.expr.functions.json_records import ONE, SEVERAL
from foreshore.expr.functions.registry import ResolvedTable
from foreshore.expr.ir import Call, Column, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.near_functions import undefined_function
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.record_columns import column_at
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.bind.widths import check_column_definitions
from foreshore.types import JSON, JSONB, ColumnType, SqlType, array_of, record_of

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

_TO = {
    f"{kind}_to_record{several}": SEVERAL if several else ONE
    for kind in ("json", "jsonb")
    for several in ("", "set")
}
_POPULATE = {
    f"{kind}_populate_record{several}": SEVERAL if several else ONE
    for kind in ("json", "jsonb")
    for several in ("", "set")
}


def returns_records(call: ast.Expression) -> bool:
    """Return whether an expression is a call of one of the functions."""
    return isinstance(call, ast.FunctionCall) and (
        call.name[-1] in _TO or call.name[-1] in _POPULATE
    )


def records_of(
    binder: "Binder",
    call: ast.FunctionCall,
    definitions: tuple[tuple[str, ast.TypeName], ...],
) -> tuple[ResolvedTable, tuple[Scalar, ...]]:
    """Return the table function of a call in FROM, and its arguments."""
    check_column_definitions(len(definitions), call.at, defined=binder.planning.defined)
    name = call.name[-1]
    if name in _TO and not definitions:
        raise SyntaxError_(
            'a column definition list is required for functions returning "record"',
            position=call.at + 1,
        )
    if name in _POPULATE and definitions:
        raise SyntaxError_(
            "a column definition list is redundant for a function returning a named composite type",
            position=call.at + 1,
        )
    args = _arguments(binder, call)
    if name in _TO:
        types = [type_of_name(type, binder.planning) for _, type in definitions]
        record = record_of([column for column, _ in definitions], types)
    else:
        record = type_of(args[0])
    item = Column(len(args), record)
    found = ResolvedTable(
        {**_TO, **_POPULATE}[name],
        tuple(map(type_of, args)),
        array_of(record),
        ColumnType(record),
        tuple(member.name for member in record.members),
        tuple(column_at(item, place) for place in range(len(record.members))),
    )
    return found, args


def bind_records(binder: "Binder", call: ast.FunctionCall) -> Scalar:
    """Return a call outside of FROM: a record, or a set of them."""
    name = call.name[-1]
    if name in _TO:
        raise SyntaxError_(
            "function returning record called in context that cannot accept type record",
            position=call.at + 1,
        )
    args = _arguments(binder, call)
    record = type_of(args[0])
    if _POPULATE[name] == ONE:
        records = Call(ONE, args, array_of(record))
        return Call("only_record(anyarray)", (records,), record)
    item = Column(len(args), record)
    found = ResolvedTable(
        SEVERAL,
        tuple(map(type_of, args)),
        array_of(record),
        ColumnType(record),
        (name,),
        (item,),
    )
    return binder.add_set(found, args, call.at)


def _arguments(binder: "Binder", call: ast.FunctionCall) -> tuple[Scalar, ...]:
    name = call.name[-1]
    args = [binder.bind(arg) for arg in call.args]
    if len(args) != (1 if name in _TO else 2):
        raise undefined_function(name, [type_of(arg) for arg in args], call.at)
    kind: SqlType = JSONB if name.startswith("jsonb") else JSON
    document = coerce(binder.planning, args[-1], kind, "implicit", at_of(call.args[-1]))
    if document is None:
        raise undefined_function(name, [type_of(arg) for arg in args], call.at)
    if name in _POPULATE and not type_of(args[0]).members:
        raise DatatypeMismatch(
            f"first argument of {name} must be a row type", position=at_of(call.args[0]) + 1
        )
    return (*args[:-1], document)
