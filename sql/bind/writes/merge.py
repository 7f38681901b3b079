"""Bind MERGE: the first applicable clause decides about each row of the source.

The source is joined with the table by the condition; unmatched rows are kept. Each row gets the
number of the applicable clause, and its new values are computed for that clause only. Identical
rows of the table are one row with a multiplicity and change together.
"""

from foreshore.errors import DuplicateAlias, SyntaxError_
from foreshore.expr.ir import (
    TRUE,
    Aggregate,
    And,
    Call,
    Case,
    Column,
    Filter,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import is_not_null, is_null
from foreshore.expr.traversal import walk_relations
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.coerce import assign
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_clause import bind_item
from foreshore.sql.bind.from_items import side_by_side
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.result import lower_and_optimize
from foreshore.sql.bind.row_security import policies_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.side_effects import has_side_effects, split_calls
from foreshore.sql.bind.with_clause import Lets, common_tables, with_lets
from foreshore.sql.bind.writes.changed_keys import keys_of, linked
from foreshore.sql.bind.writes.identical_rows import identical_as_one
from foreshore.sql.bind.writes.row_security import (
    TargetRows,
    new_row_checks,
    reads_target,
    row_checks,
)
from foreshore.sql.bind.writes.target import (
    assigned_columns,
    default_of,
    positions_of,
    refuse_generated,
    returning_over,
    row_of,
    target_table,
)
from foreshore.sql.plan import Merge, MergeAction, MergeChecks
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType


def bind_merge(planning: Planning, statement: ast.MergeStatement) -> Merge:
    """Return the plan of MERGE."""
    with common_tables(planning, statement.ctes, None, recursive=statement.recursive) as lets:
        return _merge(planning, statement, lets)


def _merge(planning: Planning, statement: ast.MergeStatement, lets: Lets) -> Merge:
    item = target_table(planning, statement.table, "merge into")
    planning.depends_on.add(item.id)
    _refuse_unreachable(statement.clauses)
    source = bind_item(planning, statement.source, None)
    rows = TargetRows(planning, item)
    target = _target(planning, item, statement.table, rows.relation)
    name = target.tables[0].alias
    if any(table.alias == name for table in source.tables):
        raise DuplicateAlias(
            f'name "{name}" specified more than once',
            detail="The name is used both as MERGE target table and data source.",
            position=statement.source.at + 1,
        )
    both = side_by_side(source, target, "inner", TRUE, False, statement.source.at)
    seen = scope_of(both, None)
    seen.columns = source.columns + target.columns
    binder = ExpressionBinder(planning, seen, Clause("JOIN conditions"))
    on = binder.boolean(statement.condition, "JOIN/ON")
    joined = side_by_side(source, target, "left", on, False, statement.source.at)
    relation, actions = _merge_rows(planning, item, statement, source, joined)
    action = Column(len(source.columns) + len(item.desc.columns), TEXT, nullable=False)
    changed = Scope(
        [*source.columns, *item.desc.columns, ColumnType(TEXT, False)],
        joined.tables,
        joined.visible,
        origins=joined.origins,
    )
    returning = returning_over(planning, statement.returning, changed, lets, action)
    selects = reads_target(scope_of(target, None))
    lets = rows.lets(lets, *(("select",) if selects else ()))
    selection, over = split_calls(relation) or (relation, ())
    link = linked(item, len(source.columns), source.relation, 0, (on,))
    draws = any(  # calls that choose rows are made for all rows at once
        has_side_effects(scalar)
        for node in walk_relations(selection)
        for scalar in scalars_of(node)
    )
    keys = None if draws else keys_of(planning, item, (link,), relation, lets)
    return Merge(
        item.id,
        lower_and_optimize(with_lets(lets, selection), is_maintained=False),
        actions,
        over,
        keys,
        returning,
        checks=None
        if policies_of(planning, item) is None
        else _checks(planning, item, selects=selects),
    )


def _refuse_unreachable(clauses: tuple[ast.MergeClause, ...]) -> None:
    for matched in (True, False):
        kind = [clause for clause in clauses if clause.matched == matched]
        if any(clause.condition is None for clause in kind[:-1]):
            raise SyntaxError_("unreachable WHEN clause specified after unconditional WHEN clause")


def _checks(planning: Planning, item: ItemView, *, selects: bool) -> MergeChecks:
    """Return the conditions of row-level security."""
    return MergeChecks(
        new_row_checks(planning, item, "insert", selects=False),
        new_row_checks(planning, item, "update", selects=selects),
        row_checks(planning, item, "update", "target row", using=True),
        row_checks(planning, item, "delete", "target row", using=True),
    )


def _target(planning: Planning, item: ItemView, ref: ast.TableRef, table: Relation) -> BoundItem:
    """Return the distinct rows of the table with their multiplicities."""
    columns = item.desc.columns
    scope = row_of(planning, item, ref, columns)
    relation: Relation
    if item.desc.keys:
        relation = Map(table, (Literal(1, INT8),))
    else:
        relation = identical_as_one(table, Aggregate("count", (), INT8))
    row_columns = [*columns, ColumnType(INT8, False)]
    return BoundItem(relation, row_columns, scope.tables, scope.visible, origins=scope.origins)


def _merge_rows(
    planning: Planning,
    item: ItemView,
    statement: ast.MergeStatement,
    source: BoundItem,
    joined: BoundItem,
) -> tuple[Relation, tuple[MergeAction, ...]]:
    """Return the rows of `Merge.selection`, with calls that have side effects, and the actions."""
    width, start = len(item.desc.names), len(source.columns)
    count = Column(start + width, INT8)
    actions: list[MergeAction] = []
    choices: list[tuple[Scalar, Scalar]] = []
    rows: list[list[Scalar]] = []  # the new row of each action
    for clause in statement.clauses:
        if clause.matched:
            scope = scope_of(joined, None)
            applies: Scalar = is_not_null(count)
        else:
            scope = Scope(
                list(joined.columns), source.tables, source.visible, origins=source.origins
            )
            applies = is_null(count)
        if clause.condition is not None:
            binder = ExpressionBinder(planning, scope, Clause("MERGE WHEN AND conditions"))
            applies = And((applies, binder.boolean(clause.condition, "WHEN AND")))
        number: Scalar = Literal(None, INT4)
        match clause.action:
            case ast.MergeUpdate(assignments=assignments):
                given = assigned_columns(planning, item, assignments, scope, start)
                old = [scope.unread(start + i) for i in range(width)]
                rows.append([given.get(i, old[i]) for i in range(width)])
                actions.append("update")
            case ast.MergeDelete():
                planning.needs.add(item.id, "DELETE")
                rows.append([Literal(None, column.type) for column in item.desc.columns])
                actions.append("delete")
            case ast.MergeInsert() as insert:
                rows.append(_inserted(planning, item, insert, scope))
                actions.append("insert")
        if not isinstance(clause.action, ast.MergeNothing):
            number = Literal(len(actions) - 1, INT4)
        choices.append((applies, number))
    chosen = Column(start + width + 1, INT4)
    relation: Relation = Map(joined.relation, (Case(tuple(choices), Literal(None, INT4), INT4),))
    relation = Filter(relation, (is_not_null(chosen),))
    new = tuple(
        Case(
            tuple(
                (Call("eq", (chosen, Literal(number, INT4)), BOOL), row[i])
                for number, row in enumerate(rows)
            ),
            Literal(None, column.type),
            column.type,
        )
        for i, column in enumerate(item.desc.columns)
    )
    relation = Project(
        Map(relation, new),
        (
            start + width + 1,
            start + width,
            *range(start, start + width),
            *range(start + width + 2, start + 2 * width + 2),
            *(range(start) if statement.returning else ()),
        ),
    )
    return relation, tuple(actions)


def _inserted(
    planning: Planning, item: ItemView, insert: ast.MergeInsert, scope: Scope
) -> list[Scalar]:
    row = [default_of(planning, item, i) for i in range(len(item.desc.names))]
    if insert.values is None:
        planning.needs.change(item, "INSERT", ())
        return row
    positions = (
        tuple(range(len(row))) if insert.columns is None else positions_of(item, insert.columns)
    )
    planning.needs.change(item, "INSERT", positions)
    if len(insert.values) > len(positions):
        raise SyntaxError_(
            "INSERT has more expressions than target columns",
            position=at_of(insert.values[len(positions)]) + 1,
        )
    if len(insert.values) < len(positions) and insert.columns is not None:
        raise SyntaxError_(
            "INSERT has more target columns than expressions",
            position=insert.columns[len(insert.values)][1] + 1,
        )
    binder = ExpressionBinder(planning, scope, Clause("VALUES"))
    for position, expr in zip(positions, insert.values, strict=False):
        if not isinstance(expr, ast.Default):
            refuse_generated(item, position, "insert")
            column, name = item.desc.columns[position], item.desc.names[position]
            row[position] = assign(planning, binder.bind(expr), column.type, name, at_of(expr))
    return row
