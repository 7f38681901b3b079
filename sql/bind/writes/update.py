"""Bind UPDATE and DELETE.

They select the rows to change by a relation over the table; identical rows are one row with a
multiplicity and change together. With FROM or USING a row may match several times but changes once:
matches are found for each distinct row, and are joined to the rows if some may be identical.
"""

from collections.abc import Sequence

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import TRUE, Column, Get, Join, Literal, Map, Project, Relation, TopK
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.bound_query import filtered
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_items import right_side, side_by_side
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.result import lower_and_optimize
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.side_effects import (
    split_calls,
)
from foreshore.sql.bind.with_clause import Lets, common_tables, with_lets
from foreshore.sql.bind.writes.changed_keys import Link, keys_of, linked, links_within
from foreshore.sql.bind.writes.current_of import condition_of_current
from foreshore.sql.bind.writes.identical_rows import identical_as_one, told_apart
from foreshore.sql.bind.writes.row_security import TargetRows, new_row_checks, reads_target
from foreshore.sql.bind.writes.target import assigned_columns, returning_over, row_of, target_table
from foreshore.sql.plan import Delete, Update
from foreshore.types import INT8


def _matching_rows(
    planning: Planning,
    item: ItemView,
    ref: ast.TableRef,
    others: tuple[ast.FromItem, ...],
    where: ast.Expression | ast.CurrentOf | None,
    table: Relation,
) -> tuple[Relation, Scope, list[Link]]:
    """Return the rows of `table` that WHERE selects, joined with those of `others`.

    The last result is the condition on the rows of the table.
    """
    planning.depends_on.add(item.id)
    scope = row_of(planning, item, ref, item.desc.columns)
    is_once = not others or item.desc.keys  # whether each of its rows is there once
    part = BoundItem(
        table if is_once else identical_as_one(table),
        scope.columns,
        scope.tables,
        scope.visible,
        origins=scope.origins,
    )
    sources: list[tuple[int, Relation]] = []  # with the position of the first column of each
    for other in others:
        right, lateral = right_side(planning, other, part, None)
        if not lateral:
            sources.append((len(part.columns), right.relation))
        part = side_by_side(part, right, "inner", TRUE, lateral, other.at)
    scope = scope_of(part, None)
    relation = part.relation
    if where is None:
        return relation, scope, []
    if isinstance(where, ast.CurrentOf):
        condition = condition_of_current(item, where)
    else:
        condition = ExpressionBinder(planning, scope, Clause("WHERE")).condition(where)
    links = [linked(item, 0, source, at, (condition,)) for at, source in sources]
    links += links_within(item, relation, condition)
    return filtered(relation, condition), scope, links


def _join_matches(item: ItemView, matches: Relation, places: Sequence[int]) -> Relation:
    """Return the rows of the table joined with `matches`, whose first columns are the table's.

    They are the same row if they are equal at `places`, which `told_apart` has returned.
    """
    width = len(item.desc.columns)
    rows, here = told_apart(Get(item.id, item.desc.columns, item.desc.keys), width)
    types, all_columns = columns_of(rows), len(columns_of(rows))
    equal = tuple(
        (
            Column(i, types[i].type, types[i].nullable),
            Column(all_columns + at, types[i].type, types[i].nullable),
        )
        for i, at in zip(here, places, strict=True)
    )
    nullable = tuple(pair for pair, i in enumerate(here) if types[i].nullable)
    joined = Join((rows, matches), equal, nullable)
    others = range(all_columns + width, all_columns + len(columns_of(matches)))
    return Project(joined, (*range(width), *others))


def _once_each(item: ItemView, matches: Relation) -> Relation:
    """Return one row of `matches` for each row of the table, whose columns come first.

    Under a key there is one row at most. Where the table has none, its equal rows all change.
    """
    one = Literal(1, INT8)
    if item.desc.keys:
        return TopK(matches, min(item.desc.keys, key=len), (), one, None)
    columns = tuple(range(len(columns_of(matches))))
    matches, places = told_apart(matches, len(item.desc.names))
    joined = _join_matches(item, TopK(matches, places, (), one, None), places)
    return Project(joined, columns)


def bind_update(planning: Planning, statement: ast.UpdateStatement) -> Update:
    """Return the plan of UPDATE."""
    with common_tables(planning, statement.ctes, None, recursive=statement.recursive) as lets:
        return _update(planning, statement, lets)


def _update(planning: Planning, statement: ast.UpdateStatement, lets: Lets) -> Update:
    item = target_table(planning, statement.table, "update")
    rows = TargetRows(planning, item)
    relation, scope, links = _matching_rows(
        planning, item, statement.table, statement.from_, statement.where, rows.relation
    )
    width = len(item.desc.names)
    given = assigned_columns(planning, item, statement.assignments, scope)
    new = tuple(given[i] if i in given else scope.unread(i) for i in range(width))
    all_columns = len(columns_of(relation))
    beside = range(width, all_columns) if statement.returning else ()

    def selected(rows: Relation) -> Relation:
        outputs = (*range(width), *range(all_columns, all_columns + width), *beside)
        return Project(Map(rows, new), outputs)

    returning = returning_over(planning, statement.returning, scope, lets)
    selects = reads_target(scope)
    lets = rows.lets(lets, "update", *(("select",) if selects else ()))
    relation = selected(relation)
    selection, over = split_calls(relation) or (relation, ())
    by_row = not over and not statement.from_
    keys = keys_of(planning, item, links, relation, lets, selected if by_row else None)
    if statement.from_:
        selection = _once_each(item, selection)
    return Update(
        item.id,
        lower_and_optimize(with_lets(lets, selection), is_maintained=False),
        returning,
        over,
        keys,
        checks=new_row_checks(planning, item, "update", selects=selects),
    )


def bind_delete(planning: Planning, statement: ast.DeleteStatement) -> Delete:
    """Return the plan of DELETE."""
    with common_tables(planning, statement.ctes, None, recursive=statement.recursive) as lets:
        return _delete(planning, statement, lets)


def _delete(planning: Planning, statement: ast.DeleteStatement, lets: Lets) -> Delete:
    item = target_table(planning, statement.table, "delete")
    planning.needs.add(item.id, "DELETE")
    rows = TargetRows(planning, item)
    relation, scope, links = _matching_rows(
        planning, item, statement.table, statement.using, statement.where, rows.relation
    )
    returning = returning_over(planning, statement.returning, scope, lets)
    lets = rows.lets(lets, "delete", *(("select",) if reads_target(scope) else ()))
    as_is = None if statement.using else lambda rows: rows
    keys = keys_of(planning, item, links, relation, lets, as_is)
    if statement.using:
        if not statement.returning:
            relation = Project(relation, tuple(range(len(item.desc.names))))
        relation = _once_each(item, relation)
    return Delete(
        item.id,
        lower_and_optimize(with_lets(lets, relation), is_maintained=False),
        returning,
        keys,
    )
