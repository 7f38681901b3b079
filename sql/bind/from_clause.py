"""Bind FROM: relations side by side, and the scope of their columns.

An item is bound within a chain of scopes. The right side of a join may be lateral, so it is bound
within a scope that is the left side's row, one level out. If it does not use that row, the join is
an ordinary one and the level is removed again.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from foreshore.constraint import Unique
from foreshore.errors import (
    FeatureNotSupported,
    InvalidColumnReference,
    SyntaxError_,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.registry import ResolvedTable
from foreshore.expr.functions.tables import is_table_function
from foreshore.expr.ir import (
    TRUE,
    Column,
    Literal,
    LocalGet,
    Map,
    Project,
    Relation,
    Scalar,
)
from foreshore.item_view import ItemView
from foreshore.policy import PolicyCommand
from foreshore.sql import ast
from foreshore.sql.bind.auto_cdc import bind_auto_cdc
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.bound_query import ordered_relation
from foreshore.sql.bind.changes import NAME as CHANGES
from foreshore.sql.bind.changes import bind_changes
from foreshore.sql.bind.coerce import to_known
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.failing_rows import NAME as FAILING_ROWS
from foreshore.sql.bind.failing_rows import bind_failing_rows
from foreshore.sql.bind.from_items import resolved_set, right_side, side_by_side
from foreshore.sql.bind.item_relations import relation_of_item
from foreshore.sql.bind.join import bind_join
from foreshore.sql.bind.json_records import records_of, returns_records
from foreshore.sql.bind.near_relations import relation_called
from foreshore.sql.bind.needs import Origin
from foreshore.sql.bind.order import ascending
from foreshore.sql.bind.output_names import function_name
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.python_calls import rows_of_array
from foreshore.sql.bind.row_security import visible
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.sets import UNIT, Rows, each_array, flat_map, in_step, one_row
from foreshore.sql.bind.show import bind_show
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.sql.bind.time_windows import bind_time_window
from foreshore.sql.bind.user_functions import python_rows, rows_in_from
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.types import INT8, NO_ORIGIN, ColumnType, ResultOrigin

UNNAMED = "unnamed_subquery"


def bind_from(
    planning: Planning, items: tuple[ast.FromItem, ...], parent: Scope | None
) -> tuple[Relation, Scope]:
    """Return the relation of all items of FROM side by side, and its scope."""
    if not items:
        return UNIT, Scope(parent=parent)
    part = bind_item(planning, items[0], parent)
    for item in items[1:]:
        right, lateral = right_side(planning, item, part, parent)
        part = side_by_side(part, right, "inner", TRUE, lateral, item.at)
    return part.relation, scope_of(part, parent)


def bind_item(planning: Planning, item: ast.FromItem, parent: Scope | None) -> BoundItem:
    """Return an item of FROM bound within `parent`."""
    match item:
        case ast.TableRef():
            return bind_table(planning, item)
        case ast.SubqueryRef():
            return _subquery(planning, item, parent)
        case ast.FunctionRef():
            return _function(planning, item, parent)
        case ast.JoinRef():
            return bind_join(planning, item, parent)
        case ast.TimeWindowRef():
            return bind_time_window(planning, item, parent)
        case ast.AutoCdcRef():
            return bind_auto_cdc(planning, item, parent)
        case _:
            assert_never(item)


# --- tables and subqueries -----------------------------------------------------------------


def bind_table(planning: Planning, item: ast.TableRef) -> BoundItem:
    """Return a relation by name, from WITH or the catalog."""
    if len(item.name) == 1:
        common = planning.common_table(item.name[0])
        if common is not None:
            if not common.returns:
                raise FeatureNotSupported(
                    f'WITH query "{item.name[0]}" does not have a RETURNING clause',
                    position=item.at + 1,
                )
            relation: Relation = LocalGet(common.number, common.columns)
            part = _named(
                relation,
                list(common.columns),
                common.names,
                item,
                item.name[0],
                None,
                common.origins,
            )
            part.order = common.order
            return part
    with located(item.at):
        view = relation_called(planning, item.name)
    qualify(planning, item, view)
    relation = relation_of_item(planning, view, item.at)
    if view.policies is not None:
        commands: tuple[PolicyCommand, ...] = ("select",)
        if (view.id, item.at) in planning.locking:
            commands = ("update", "select")
        relation = visible(planning, view, relation, commands)
    part = _named(
        relation,
        list(view.desc.columns),
        view.desc.names,
        item,
        *alias_of(item, view),
        origins_in(view),
    )
    keys = (each for each in view.constraints if isinstance(each, Unique) and each.primary)
    key = next((each.columns for each in keys), ())
    part.tables = [replace(table, oid=view.oid or None, key=key) for table in part.tables]
    entry = planning.needs.entry(view)
    part.origins = {i: Origin(entry, i) for i in range(len(part.columns))}
    return part


def origins_in(view: ItemView) -> tuple[ResultOrigin, ...]:
    """Return what a relation's columns are to those who ask where results come from."""
    return tuple((view.oid or 0, number) for number in range(1, len(view.desc.names) + 1))


def alias_of(item: ast.TableRef, view: ItemView) -> tuple[str, str | None]:
    """Return the name and schema that qualify columns of a relation without an alias.

    They are those written: in a kept definition, a name may differ from the current one.
    """
    if len(item.name) == 3:
        return item.name[2], item.name[1]
    return view.name.item, view.name.schema


def qualify(planning: Planning, item: ast.TableRef, view: ItemView) -> None:
    """Record that the name at `item` is qualified in the kept text."""
    name = view.name
    parts = [part for part in (name.database, name.schema, name.item) if part is not None]
    text = ".".join(map(quote_identifier, parts))
    select = "" if planning.in_function else view.select  # a body is bound as it was written
    if select:
        text = f"(SELECT {select} FROM {text})"
    if item.alias is None and (select or item.name[-1] != name.item):
        text += f" AS {quote_identifier(item.name[-1])}"
    planning.qualified.append((item.at, item.end, text))


def _named(
    relation: Relation,
    columns: list[ColumnType],
    names: tuple[str, ...],
    item: ast.TableRef | ast.SubqueryRef | ast.FunctionRef,
    alias: str,
    schema: str | None,
    origins: tuple[ResultOrigin, ...] = (),
) -> BoundItem:
    """Return the relation with its alias and the column names that the alias gives."""
    hidden = None
    if item.alias is not None:
        if isinstance(item, ast.TableRef) and alias != item.alias:
            hidden = alias
        alias, schema = item.alias, None
    if len(item.columns) > len(names):
        raise InvalidColumnReference(
            f'table "{alias}" has {len(names)} columns available '
            f"but {len(item.columns)} columns specified"
        )
    names = item.columns + names[len(item.columns) :]
    origins = origins or (NO_ORIGIN,) * len(names)
    slots = tuple(Slot(name, i, origins[i]) for i, name in enumerate(names))
    scalar = isinstance(item, ast.FunctionRef) and len(slots) == 1
    unnamed = isinstance(item, ast.SubqueryRef) and item.alias is None
    table = Table(alias, schema, slots, scalar=scalar, hidden_name=hidden, unnamed=unnamed)
    return BoundItem(relation, columns, [table], list(slots))


def _subquery(planning: Planning, item: ast.SubqueryRef, parent: Scope | None) -> BoundItem:
    around = parent if item.lateral else _hide_non_lateral(parent)
    if isinstance(item.query, ast.ShowStatement):
        bound = bind_show(planning, item.query)
    else:
        bound = planning.binding.query(planning, item.query, around, locking=True)
    relation, order = ordered_relation(bound)
    columns = list(columns_of(relation))
    part = _named(relation, columns, bound.names, item, UNNAMED, None, bound.origins)
    part.order = order
    return part


def _hide_non_lateral(scope: Scope | None) -> Scope | None:
    """Return the scopes with tables hidden that only LATERAL may reference."""
    if scope is None or not scope.lateral:
        return scope
    return Scope(
        scope.columns, [], [], _hide_non_lateral(scope.parent), hidden=scope.tables, lateral=True
    )


# --- functions -----------------------------------------------------------------------------


def _function(planning: Planning, item: ast.FunctionRef, parent: Scope | None) -> BoundItem:
    calls = [each for call in item.calls for each in each_array(call)]
    if len(calls) != 1:
        return _rows_from(planning, item, calls, parent)
    (call,) = calls
    binder = ExpressionBinder(planning, Scope(parent=parent), Clause("functions in FROM"))
    if isinstance(call, ast.FunctionCall) and returns_records(call):
        found, args = records_of(binder, call, item.definitions)
        outputs = (*found.names, *(("ordinality",) if item.ordinality else ()))
        return _of_rows(flat_map(UNIT, found, args), outputs, item, call.name[-1])
    if item.definitions:
        raise SyntaxError_(
            'a column definition list is only allowed for functions returning "record"',
            position=item.at + 1,
        )
    if isinstance(call, ast.FunctionCall) and call.name == (CHANGES,):
        read, columns = bind_changes(planning, call)
        return _named(read, list(columns_of(read)), columns, item, CHANGES, None)
    if isinstance(call, ast.FunctionCall) and call.name == (FAILING_ROWS,):
        read, columns = bind_failing_rows(planning, call)
        return _named(read, list(columns_of(read)), columns, item, FAILING_ROWS, None)
    if isinstance(call, ast.FunctionCall) and is_table_function(call.name[-1]):
        return _table_function(binder, item, call)
    name = call.name[-1] if isinstance(call, ast.FunctionCall) else function_name(call)
    if isinstance(call, ast.FunctionCall):
        part = _python_rows(binder, item, call)
        if part is not None:
            return part
    if isinstance(call, ast.FunctionCall) and not item.ordinality:
        rows = _user_rows(binder, item, call)
        if rows is not None:
            return rows
    scalar = to_known(planning, binder.bind(call), call.at)
    relation: Relation = Map(UNIT, (scalar,))
    names: tuple[str, ...] = (item.alias or name,)
    if item.ordinality:
        relation = Map(relation, (Literal(1, INT8),))
        names += ("ordinality",)
    return _named(relation, list(columns_of(relation)), names, item, name, None)


def _user_rows(
    binder: ExpressionBinder, item: ast.FunctionRef, call: ast.FunctionCall
) -> BoundItem | None:
    """Return the rows of a user's function that returns rows, None for any other."""
    rows = rows_in_from(binder, call, item.alias)
    if rows is None:
        return None
    part = _named(rows.relation, list(columns_of(rows.relation)), rows.names, item, *rows.alias)
    part.order = rows.order
    return part


def _python_rows(
    binder: ExpressionBinder, item: ast.FunctionRef, call: ast.FunctionCall
) -> BoundItem | None:
    """Return the rows of a function in Python, None for any other."""
    called = _python_set(binder, call)
    if called is None:
        return None
    found, args = called
    name, names = call.name[-1], found.names
    if names == (name,):  # of no column
        names = (item.alias or name,)
    names += ("ordinality",) if item.ordinality else ()
    return _of_rows(flat_map(UNIT, found, args), names, item, name)


def _python_set(
    binder: ExpressionBinder, call: ast.FunctionCall
) -> tuple[ResolvedTable, tuple[Scalar, ...]] | None:
    """Return the table function that a function in Python is, and its arguments.

    None for any other.
    """
    called = python_rows(binder, call)
    if called is None:
        return None
    function, value = called
    found = rows_of_array(binder.planning, function, value, call.at)
    if not function.columns:
        found = replace(found, names=(call.name[-1],))
    return found, (value,)


def _table_function(
    binder: ExpressionBinder, item: ast.FunctionRef, call: ast.FunctionCall
) -> BoundItem:
    name = call.name[-1]
    found, args = resolved_set(binder, call)
    names = found.names
    if len(names) == 1:
        # A column name defined by the function is kept under an alias.
        names = ((item.alias or name) if names[0] == name else names[0],)
    if item.ordinality:
        names += ("ordinality",)
    return _of_rows(flat_map(UNIT, found, args), names, item, name)


def _of_rows(rows: Rows, names: tuple[str, ...], item: ast.FunctionRef, name: str) -> BoundItem:
    """Return rows of functions as an item; their number is the last column."""
    outputs = (*rows.values, rows.number)
    width = len(columns_of(rows.relation))
    relation = Project(Map(rows.relation, outputs), tuple(range(width, width + len(outputs))))
    part = _named(relation, list(columns_of(relation)), names, item, name, None)
    part.order = ascending(Column(len(rows.values), INT8, False))
    return part


def _rows_from(
    planning: Planning,
    item: ast.FunctionRef,
    items: Sequence[ast.Expression],
    parent: Scope | None,
) -> BoundItem:
    """Return the rows of several functions side by side, NULL where one has ended."""
    binder = ExpressionBinder(planning, Scope(parent=parent), Clause("functions in FROM"))
    calls: list[tuple[ResolvedTable, tuple[Scalar, ...]]] = []
    for call in items:
        if isinstance(call, ast.FunctionCall) and is_table_function(call.name[-1]):
            calls.append(resolved_set(binder, call))
            continue
        if isinstance(call, ast.FunctionCall):
            rows = _python_set(binder, call)
            if rows is not None:
                calls.append(rows)
                continue
        name = call.name[-1] if isinstance(call, ast.FunctionCall) else function_name(call)
        scalar = to_known(planning, binder.bind(call), call.at)
        if type_of(scalar).element is not None or has_side_effects(scalar):
            raise FeatureNotSupported(
                f"{name} in ROWS FROM with several functions is not supported",
                position=call.at + 1,
            )
        calls.append(one_row(scalar, name))
    names = tuple(name for found, _ in calls for name in found.names)
    if item.ordinality:
        names += ("ordinality",)
    first = items[0]
    alias = first.name[-1] if isinstance(first, ast.FunctionCall) else function_name(first)
    return _of_rows(in_step(UNIT, calls), names, item, alias)
