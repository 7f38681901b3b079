"""Bind references to columns, and to rows of tables, by the names in a scope."""

from typing import TYPE_CHECKING

from foreshore.errors import AmbiguousColumn, FeatureNotSupported, UndefinedColumn, UndefinedTable
from foreshore.expr.ir import Call, Case, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.row_values import RowValue, row_of_table
from foreshore.sql.bind.scope import Scope, Table, reference, resolve_column, resolve_table
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.lexer import tokenize
from foreshore.types import BOOL, CID, OID, XID, SqlType

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder


FIRST_NORMAL_OID = 16_384  # as in PostgreSQL: the system's objects have lower ones
FROZEN = 2  # the transaction of rows that are visible to all, in PostgreSQL
_SYSTEM: dict[str, SqlType | None] = {
    "tableoid": OID, "xmin": XID, "xmax": XID, "cmin": CID, "cmax": CID, "ctid": None,
}  # fmt: skip


def bind_column(binder: "Binder", expr: ast.ColumnRef) -> "Scalar | RowValue":
    """Return a column, or the row of a table whose name is no column's."""
    parts = expr.parts
    if len(parts) > 3:
        if parts[0] != binder.planning.catalog.database and not binder.planning.defined:
            raise FeatureNotSupported(
                f"cross-database references are not implemented: {'.'.join(parts)}",
                position=expr.at + 1,
            )
        parts = parts[1:]
    try:
        found = resolve_column(binder.scope, parts, expr.at)
        if len(parts) > 2:
            resolve_qualifier(binder.planning, binder.scope, expr.parts[:-1], expr.at)
        return found
    except UndefinedColumn:
        if parts[-1] in _SYSTEM:
            return _system_column(binder, parts, expr.at)
        if len(parts) > 1:
            raise
        try:
            table = resolve_table(binder.scope, parts, expr.at)
        except (UndefinedTable, AmbiguousColumn):
            pass
        else:
            return row_of_table(*table, expr.at)
        raise


def _system_column(binder: "Binder", parts: tuple[str, ...], at: int) -> Scalar:
    """Return the oid of the table that a row is of, or a number of the transaction that wrote it.

    Rows of system relations were written long ago, as PostgreSQL shows by 2. In tables such a
    number tells applications whether a row has changed, for which there is none here.
    """
    name = parts[-1]
    table, level, scope = table_of_system_column(binder, parts, at)
    type = _SYSTEM[name]
    if name != "tableoid" and (type is None or (table.oid or 0) >= FIRST_NORMAL_OID):
        raise FeatureNotSupported(
            f"system column {name} of tables is not supported",
            hint="Tell rows apart by a key, and versions of a row by a column of your own.",
            position=at + 1,
        )
    assert type is not None, name
    assert table.oid is not None, table  # it has system columns
    found = {"tableoid": table.oid, "xmin": FROZEN}.get(name, 0)
    oid = Literal(found, type)
    if not table.outer:
        return oid
    if table.present is None:
        raise FeatureNotSupported(
            f"{name} of the nullable side of an outer join is not supported",
            hint="Declare a column of the table NOT NULL.",
            position=at + 1,
        )
    row = reference(scope, level, table.present, name, at)
    return Case(((Call("is_null", (row,), BOOL), Literal(None, type)),), oid, type)


def table_of_system_column(
    binder: "Binder", parts: tuple[str, ...], at: int
) -> tuple[Table, int, Scope]:
    """Return the table of a system column, how many levels out it is, and its scope.

    The right on the whole table is needed. Raises UndefinedColumn, AmbiguousColumn.
    """
    name, qualifier = parts[-1], parts[:-1]
    level, scope = 0, binder.scope
    if qualifier:
        table, level, scope = resolve_table(binder.scope, qualifier, at)
    else:
        tables = [table for table in binder.scope.tables if table.oid is not None]
        if len(tables) > 1:
            raise AmbiguousColumn(f'column reference "{name}" is ambiguous', position=at + 1)
        if not tables:
            raise UndefinedColumn(f'column "{name}" does not exist', position=at + 1)
        table = tables[0]
    if table.oid is None:
        shown = ".".join((*qualifier[-1:], name))
        raise UndefinedColumn(f"column {shown} does not exist", position=at + 1)
    for slot in table.slots[:1]:
        if (origin := scope.origins.get(slot.index)) is not None:
            origin.entry.whole = True
    return table, level, scope


def resolve_qualifier(
    planning: Planning, scope: Scope, qualifier: tuple[str, ...], at: int
) -> tuple[Table, int, Scope]:
    """Return the table that `qualifier` names, the number of levels out, and its scope.

    In kept text the schema is omitted, because it may be renamed, except in rare cases where it
    distinguishes tables.
    """
    found = resolve_table(scope, qualifier, at)
    is_kept = planning.keeps_text and not planning.inlining
    if is_kept and len(qualifier) > 1 and resolve_table(scope, qualifier[-1:], at)[0] is found[0]:
        tokens, _ = tokenize(planning.text)
        first = next(place for place, token in enumerate(tokens) if token.start == at)
        table = tokens[first + 2 * (len(qualifier) - 1)]
        planning.qualified.append((at, table.end, quote_identifier(table.value)))
    return found
