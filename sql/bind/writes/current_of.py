"""Bind WHERE CURRENT OF: a change of the row on which a cursor is.

    DECLARE c CURSOR FOR SELECT v FROM t WHERE v > 3;    -- t has a key k
    UPDATE t SET v = 0 WHERE CURRENT OF c;               -- WHERE k = (k of the row of c)

A row is known by a key of its table. The rows of a cursor have the columns of these keys: if the
query does not return them, they follow its own columns and are hidden. As in PostgreSQL, a query
with FOR UPDATE gives the rows of all tables that it locks; another has to be a scan of one table.
The cursor's values are known when the change runs, so they are `Environment` scalars.
"""

from collections.abc import Iterator
from dataclasses import replace

from msgspec.structs import replace as with_fields

from foreshore.errors import DatabaseError, FeatureNotSupported
from foreshore.expr.ir import And, Call, Column, Environment, Scalar
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.from_clause import origins_in
from foreshore.sql.bind.locking import Source, names_of, sources_in
from foreshore.sql.bind.needs import Needs
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.select_statement import bind_select
from foreshore.sql.plan import CursorTable, Declare, Select
from foreshore.types import BOOL

PREFIX = "current_of"


def condition_of_current(item: ItemView, where: ast.CurrentOf) -> Scalar:
    """Return the condition that a row of a table is the one on which a cursor is."""
    key = _key(item)
    if not key:
        raise FeatureNotSupported(
            f'WHERE CURRENT OF is not supported for table "{item.name.item}", which has no key',
            hint="Add a primary key to the table.",
            position=where.at + 1,
        )
    predicates = []
    for position in key:
        column = item.desc.columns[position]
        value = Environment(f"{PREFIX}:{item.id}:{position}:{where.cursor}", column.type)
        predicates.append(Call("eq", (Column(position, column.type, column.nullable), value), BOOL))
    return predicates[0] if len(predicates) == 1 else And(tuple(predicates))


def _key(item: ItemView) -> tuple[int, ...]:
    """Return the key by which rows of a table are known; none if it has no key without NULLs."""
    columns = item.desc.columns
    keys = (key for key in item.desc.keys if not any(columns[i].nullable for i in key))
    return next(keys, ())


def with_cursor_tables(planning: Planning, tree: ast.DeclareStatement, plan: Declare) -> Declare:
    """Return DECLARE with the tables whose rows can be changed through the cursor.

    `plan` is the bound statement without them. If the columns of a key are not in its result, the
    query is bound again with these columns; they need no right of the role.
    """
    query = tree.statement.query if isinstance(tree.statement, ast.SelectStatement) else None
    if query is None or not isinstance(plan.query, Select) or not _is_scan(query):
        return plan
    assert isinstance(query.body, ast.Select)
    sources = list(sources_in(planning, query.body.from_, names_of(query), nullable=False))
    locked = _locked(query, sources)
    if not query.locks and len(sources) > 1:
        return plan
    found: list[CursorTable] = []
    lacking: list[tuple[Source, str]] = []
    width = len(plan.query.desc.names)
    for source in locked:
        item = source.of
        if not isinstance(item, ItemView) or item.kind != "table" or not (key := _key(item)):
            continue
        if sum(_is_of(each, item) for each in locked) > 1:
            found.append(CursorTable(item.id, (), ()))
            continue
        places = _shown(plan.query, item, key) if len(sources) == 1 else None
        if places is None:
            places = tuple(range(width + len(lacking), width + len(lacking) + len(key)))
            lacking += [(source, name) for name in _names(source, item, key)]
        found.append(CursorTable(item.id, key, places))
    if not lacking:
        return replace(plan, tables=tuple(found))
    wide = None if plan.query.query.row_outputs else _with_columns(planning, tree, lacking)
    if wide is None:
        return plan
    return replace(plan, query=wide, tables=tuple(found), hidden=len(lacking))


def _is_scan(query: ast.Query) -> bool:
    """Return whether each row of the result is one of the joined rows of FROM."""
    body = query.body
    return isinstance(body, ast.Select) and not (
        body.distinct
        or body.group_by
        or body.groups_all
        or body.having is not None
        or body.into is not None
    )


def _locked(query: ast.Query, sources: list[Source]) -> list[Source]:
    """Return the items of FROM that a query locks; all of them if it locks nothing."""
    if any(not clause.of for clause in query.locks) or not query.locks:
        return sources
    names = {name[0] for clause in query.locks for name, _ in clause.of}
    return [each for each in sources if each.name in names]


def _is_of(source: Source, item: ItemView) -> bool:
    return isinstance(source.of, ItemView) and source.of.id == item.id


def _shown(select: Select, item: ItemView, key: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the places of a key in the rows of a query of one table, or None."""
    wanted = [origins_in(item)[i] for i in key]
    origins = select.desc.origins
    if not all(each in origins for each in wanted):
        return None
    return tuple(origins.index(each) for each in wanted)


def _names(source: Source, item: ItemView, key: tuple[int, ...]) -> Iterator[str]:
    """Yield the names of key columns in a query, which may rename them."""
    names = [*source.columns, *item.desc.names[len(source.columns) :]]
    return (names[i] for i in key)


def _with_columns(
    planning: Planning, tree: ast.DeclareStatement, columns: list[tuple[Source, str]]
) -> Select | None:
    """Return a query with further columns; None if its FROM or targets do not allow them."""
    assert isinstance(tree.statement, ast.SelectStatement)
    query = tree.statement.query
    assert isinstance(query.body, ast.Select)
    at = query.body.at
    targets = tuple(
        ast.Target(ast.ColumnRef((source.name, column) if source.name else (column,), at), None, at)
        for source, column in columns
    )
    body = with_fields(query.body, targets=query.body.targets + targets)
    wide = with_fields(tree.statement, query=with_fields(query, body=body))
    needs, planning.needs = planning.needs, Needs()
    try:
        return bind_select(planning, wide)
    except DatabaseError:  # say, an aggregate without GROUP BY
        return None
    finally:
        planning.needs = needs
