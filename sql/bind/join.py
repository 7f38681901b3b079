"""Bind joins: ON, USING and NATURAL; `asof.py` has ASOF joins."""

from typing import Literal as OneOf

from foreshore.errors import (
    AmbiguousColumn,
    InvalidColumnReference,
    UndefinedColumn,
)
from foreshore.expr.columns import type_of
from foreshore.expr.ir import TRUE, Call, Column, Map, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.asof import bind_asof
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.coerce import common_type, to_common
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_items import right_side, side_by_side
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.row_values import conjunction
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.types import ColumnType


def bind_join(planning: Planning, item: ast.JoinRef, parent: Scope | None) -> BoundItem:
    """Return a join bound within `parent`."""
    left = planning.binding.item(planning, item.left, parent)
    right, lateral = right_side(planning, item.right, left, parent)
    if lateral and item.kind in ("right", "full"):
        raise InvalidColumnReference(
            "invalid reference to FROM-clause entry: "
            "the combining JOIN type must be INNER or LEFT for a LATERAL reference",
            position=item.at + 1,
        )
    kind = "inner" if item.kind == "cross" else item.kind
    using = item.using
    if item.natural:
        names = {slot.name for slot in right.visible}
        using = tuple((slot.name, item.at) for slot in left.visible if slot.name in names)
    if item.asof:
        part = bind_asof(planning, item, left, right, lateral, parent)
    elif using is not None:
        part = _using(planning, item, left, right, kind, using, lateral)
    else:
        on: Scalar = TRUE
        if item.on is not None:
            whole = side_by_side(left, right, kind, TRUE, False, item.at)
            scope = scope_of(whole, parent)
            # ON is evaluated before NULLs are filled in.
            scope.columns = left.columns + right.columns
            binder = ExpressionBinder(planning, scope, Clause("JOIN conditions"))
            on = binder.boolean(item.on, "JOIN/ON")
        part = side_by_side(left, right, kind, on, lateral, item.at)
    if item.alias is not None:
        names_ = tuple(slot.name for slot in part.visible)
        if len(item.columns) > len(names_):
            raise InvalidColumnReference(
                f'join expression "{item.alias}" has {len(names_)} columns available '
                f"but {len(item.columns)} columns specified",
                position=item.at + 1,
            )
        names_ = item.columns + names_[len(item.columns) :]
        slots = tuple(
            Slot(name, slot.index, slot.origin)
            for name, slot in zip(names_, part.visible, strict=True)
        )
        part.tables, part.visible = [Table(item.alias, None, slots)], list(slots)
    if item.using_alias is not None and item.alias is None:
        assert item.using is not None
        merged = {name for name, _ in item.using}
        shown = tuple(slot for slot in part.visible[: len(merged)] if slot.name in merged)
        scope = Scope(tables=part.tables)
        scope.add_table(Table(item.using_alias, None, shown))
    return part


def _using(
    planning: Planning,
    item: ast.JoinRef,
    left: BoundItem,
    right: BoundItem,
    kind: OneOf["inner", "left", "right", "full"],
    using: tuple[tuple[str, int], ...],
    lateral: bool,
) -> BoundItem:
    """Return a join USING columns; each pair of equal columns is visible as one."""
    width = len(left.columns)
    binder = ExpressionBinder(planning, Scope(), Clause("JOIN/USING"))
    tests: list[Scalar] = []
    pairs: list[tuple[str, int, int, int]] = []
    seen: set[str] = set()
    for name, at in using:
        if name in seen:
            raise InvalidColumnReference(
                f'column name "{name}" appears more than once in USING clause',
                sqlstate="42701",
                position=at + 1,
            )
        seen.add(name)
        i, j = _common(left, name, "left", at), _common(right, name, "right", at)
        pairs.append((name, i, j, at))
        scope_of(left, None).read(i)
        scope_of(right, None).read(j)
        a, b = left.columns[i], right.columns[j]
        both = (Column(i, a.type, a.nullable), Column(width + j, b.type, b.nullable))
        common_type(both, "JOIN/USING", (at, at))  # its error comes first
        tests.append(binder.call("=", both, at))
    part = side_by_side(left, right, kind, conjunction(tests), lateral, item.at)
    merged: list[Slot] = []
    extra: list[Scalar] = []
    for name, i, j, at in pairs:
        a, b = part.columns[i], part.columns[width + j]
        sides: tuple[Scalar, ...] = (
            Column(i, a.type, a.nullable),
            Column(width + j, b.type, b.nullable),
        )
        common = common_type(sides, "JOIN/USING", (at, at))
        sides = tuple(to_common(planning, side, common, "JOIN/USING", at) for side in sides)
        chosen = sides[1] if kind == "right" else sides[0]
        if kind == "full":
            chosen = Call("coalesce", sides, common)
        if isinstance(chosen, Column):
            origin = next(s.origin for s in part.visible if s.index == chosen.index)
            merged.append(Slot(name, chosen.index, origin))
        else:
            merged.append(Slot(name, len(part.columns) + len(extra)))
            extra.append(chosen)
    if extra:
        part.relation = Map(part.relation, tuple(extra))
        nullable = kind != "inner"
        part.columns = part.columns + [ColumnType(type_of(e), nullable) for e in extra]
    gone = {i for _, i, _, _ in pairs} | {width + j for _, _, j, _ in pairs}
    part.visible = merged + [slot for slot in part.visible if slot.index not in gone]
    return part


def _common(part: BoundItem, name: str, side: str, at: int) -> int:
    matching = [slot for slot in part.visible if slot.name == name]
    if not matching:
        raise UndefinedColumn(
            f'column "{name}" specified in USING clause does not exist in {side} table'
        )
    if len(matching) > 1:
        raise AmbiguousColumn(f'common column name "{name}" appears more than once in {side} table')
    return matching[0].index
