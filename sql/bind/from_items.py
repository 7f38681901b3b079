"""Items of FROM side by side, and set-returning functions that are items."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal as OneOf
from typing import assert_never

from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import NO_LITERAL, ResolvedTable, resolve_table
from foreshore.expr.ir import (
    TRUE,
    Join,
    JoinOn,
    Literal,
    OuterColumn,
    Relation,
    Scalar,
)
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.call import with_hidden_arguments
from foreshore.sql.bind.needs import moved as moved_origins
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.records import of_composites
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.rewrite.scalars import map_relation
from foreshore.types import ColumnType


def resolved_set(
    binder: Binder, call: ast.FunctionCall
) -> tuple[ResolvedTable, tuple[Scalar, ...]]:
    """Return a set-returning function that is called, and its arguments."""
    args = tuple(binder.bind(arg) for arg in call.args)
    offsets = tuple(at_of(arg) for arg in call.args)
    args, offsets = with_hidden_arguments(binder, call.name[-1], args, offsets, call.at)
    literals = tuple(a.value if isinstance(a, Literal) else NO_LITERAL for a in args)
    with located(call.at):
        found = resolve_table(call.name[-1], tuple(map(type_of, args)), literals)
    args = binder.coerced(args, found.arg_types, offsets)
    if call.name[-1] == "unnest" and found.element.type.defined and found.element.type.members:
        found = of_composites(found)
    return binder.planning.zone.applied_to_set(found, args)


def _may_be_lateral(item: ast.FromItem) -> bool:
    match item:
        case ast.TableRef() | ast.TimeWindowRef() | ast.AutoCdcRef():
            return False
        case ast.SubqueryRef(lateral=lateral):
            return lateral
        case ast.FunctionRef():
            return True
        case ast.JoinRef(left=left, right=right):
            return _may_be_lateral(left) or _may_be_lateral(right)
        case _:
            assert_never(item)


def right_side(
    planning: Planning, item: ast.FromItem, left: BoundItem, parent: Scope | None
) -> tuple[BoundItem, bool]:
    """Return the right side of a join with `left`, and whether it uses the left row."""
    if not _may_be_lateral(item):
        return planning.binding.item(planning, item, parent), False
    row = scope_of(left, parent)
    row.lateral = True
    right = planning.binding.item(planning, item, row)
    if row.used:
        return right, True

    def moved_out(node: Scalar, depth: int) -> Scalar | None:
        if isinstance(node, OuterColumn) and node.level > depth + 1:
            return OuterColumn(node.level - 1, node.index, node.type, node.nullable)
        return None

    right.relation = map_relation(right.relation, moved_out, 0)
    return right, False


def side_by_side(
    left: BoundItem,
    right: BoundItem,
    kind: OneOf["inner", "left", "right", "full"],
    on: Scalar,
    lateral: bool,
    at: int,
) -> BoundItem:
    """Return the join of two items, with the names of both."""
    width = len(left.columns)
    lefts, rights = list(left.columns), list(right.columns)
    if kind in ("right", "full"):
        lefts = [ColumnType(c.type) for c in lefts]
    if kind in ("left", "full"):
        rights = [ColumnType(c.type) for c in rights]
    relation: Relation
    if kind == "inner" and on == TRUE and not lateral:
        relation = Join((*_factors(left.relation), right.relation))
    else:
        relation = JoinOn(left.relation, right.relation, kind, on, lateral)
    origins = {**left.origins, **moved_origins(right.origins, width)}
    part = BoundItem(relation, lefts + rights, [], [], origins=origins)
    if kind in ("inner", "left"):
        part.order = right.order.moved(width).within_rows(left.order, left.columns)
    scope = Scope()
    scope.tables = list(left.tables)  # which have different names
    if kind in ("right", "full"):
        scope.tables = [_outer(table, left.columns) for table in left.tables]
    for table in right.tables:
        shown = _outer(table, right.columns) if kind in ("left", "full") else table
        scope.add_table(_moved(shown, width))
    part.tables = scope.tables
    part.visible = left.visible + [Slot(s.name, s.index + width, s.origin) for s in right.visible]
    return part


def _factors(relation: Relation) -> tuple[Relation, ...]:
    """Return the factors of a product, or the relation itself."""
    if isinstance(relation, Join) and relation.inputs and not relation.equivalences:
        return relation.inputs
    return (relation,)


def _moved(table: Table, by: int) -> Table:
    slots = tuple(Slot(slot.name, slot.index + by, slot.origin) for slot in table.slots)
    present = None if table.present is None else table.present + by
    key = tuple(index + by for index in table.key)
    return replace(table, slots=slots, present=present, key=key)


def _outer(table: Table, columns: Sequence[ColumnType]) -> Table:
    """Return a table with `columns` on the nullable side of a join."""
    if table.outer:
        return table
    never_null = (slot.index for slot in table.slots if not columns[slot.index].nullable)
    return replace(table, outer=True, present=next(never_null, None))
