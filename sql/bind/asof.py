"""Bind ASOF joins: each row of the left side with the last, or the next, row of the right side.

    t ASOF JOIN q ON t.sym = q.sym AND t.ts >= q.ts

The condition has equalities and one inequality: `>=` and `>` for the last row of `q` up to or
before `t.ts`, `<=` and `<` for the next one. Of several rows of `q` with one key and time, the
first in the order of all of its columns is taken.

The rows of both sides are ordered by time within each key, by a window function that looks for the
last time of `q`. The row of `q` is then found by its key and time. So a change of either side costs
what lies between it and the next row of `q`.
"""

from dataclasses import dataclass
from typing import NoReturn

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.comparison import check_ordering
from foreshore.expr.ir import (
    TRUE,
    And,
    Call,
    Case,
    Column,
    Filter,
    JoinOn,
    Let,
    Literal,
    LocalGet,
    Map,
    OrderKey,
    Project,
    Relation,
    Scalar,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_item import BoundItem, scope_of
from foreshore.sql.bind.bound_query import AddedColumns
from foreshore.sql.bind.coerce import common_type, to_common
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_items import side_by_side
from foreshore.sql.bind.order import UNORDERED
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.row_values import conjunction
from foreshore.sql.bind.scope import Scope
from foreshore.sql.lower.outer_columns import Scopes, has_subquery
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import BOOL, INT4, INT8, SqlType

_FLIPPED = {"eq": "eq", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_WHAT = "an ASOF JOIN takes equalities and one inequality, each between its two sides"


@dataclass(frozen=True, slots=True)
class _Condition:
    """The keys of both sides, then their times, over the columns of each, and the inequality."""

    left: tuple[Scalar, ...]
    right: tuple[Scalar, ...]
    operator: str  # of the left time and the right one

    @property
    def is_next(self) -> bool:
        """Whether the next row is looked for, not the last one."""
        return self.operator in ("lt", "le")

    @property
    def types(self) -> tuple[SqlType, ...]:
        return tuple(map(type_of, self.left))


def bind_asof(
    planning: Planning,
    item: ast.JoinRef,
    left: BoundItem,
    right: BoundItem,
    lateral: bool,
    parent: Scope | None,
) -> BoundItem:
    """Return the join of two items that are bound."""
    if lateral:
        raise FeatureNotSupported(
            "ASOF JOIN with a LATERAL item is not supported", position=item.at + 1
        )
    assert item.on is not None
    assert item.kind in ("inner", "left")
    whole = side_by_side(left, right, "inner", TRUE, False, item.at)
    binder = ExpressionBinder(planning, scope_of(whole, parent), Clause("JOIN conditions"))
    condition = _condition(planning, item, binder.boolean(item.on, "JOIN/ON"), len(left.columns))
    part = side_by_side(left, right, item.kind, TRUE, False, item.at)
    part.relation = _joined(planning, left.relation, right.relation, condition, item.kind == "left")
    part.order = UNORDERED
    return part


def _condition(planning: Planning, item: ast.JoinRef, on: Scalar, width: int) -> _Condition:
    pairs: list[tuple[Scalar, Scalar]] = []
    times: list[tuple[str, tuple[Scalar, Scalar]]] = []
    for test in on.args if isinstance(on, And) else (on,):
        if not isinstance(test, Call) or test.function not in _FLIPPED or has_subquery(test):
            _refuse(item)
        a, b = test.args
        common = common_type((a, b), "JOIN/ON", (item.at, item.at))
        a, b = (to_common(planning, each, common, "JOIN/ON", item.at) for each in (a, b))
        operator, sides = test.function, (_side(a, width), _side(b, width))
        if sides == ("right", "left"):
            a, b, operator = b, a, _FLIPPED[operator]
        elif sides != ("left", "right"):
            _refuse(item)
        pair = a, _moved(b, -width)
        if operator == "eq":
            pairs.append(pair)
        else:
            times.append((operator, pair))
    if len(times) != 1:
        _refuse(item)
    ((operator, time),) = times
    with located(item.at):
        check_ordering(type_of(time[0]))
    pairs.append(time)
    return _Condition(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), operator)


def _refuse(item: ast.JoinRef) -> NoReturn:
    raise FeatureNotSupported(_WHAT, position=item.at + 1)


def _side(scalar: Scalar, width: int) -> str:
    """Return which side's columns a scalar uses: "left", "right", or "both" or "none"."""
    used = {i < width for level, i in Scopes().of_scalar(scalar) if level == 0}
    if len(used) != 1:
        return "both" if used else "none"
    return "left" if used.pop() else "right"


def _moved(scalar: Scalar, by: int) -> Scalar:
    def moved(node: Scalar, depth: int) -> Scalar | None:
        if isinstance(node, Column) and depth == 0:
            return Column(node.index + by, node.type, node.nullable)
        return None

    return map_scalar(scalar, moved)


def _joined(
    planning: Planning, left: Relation, right: Relation, condition: _Condition, outer: bool
) -> Relation:
    """Return the rows of `left` with the columns of their rows of `right`."""
    width, keys = len(columns_of(left)), len(condition.types)
    theirs = _by_time(right, condition)
    number = planning.new_let()
    shared = LocalGet(number, columns_of(theirs))
    ours = _with_found(left, shared, condition)
    all_columns = len(columns_of(ours))
    here = [*range(width, width + keys - 1), all_columns - 1]
    there = range(all_columns, all_columns + keys)
    types = condition.types
    on = conjunction(
        [
            Call("eq", (Column(i, type), Column(j, type)), BOOL)
            for i, j, type in zip(here, there, types, strict=True)
        ]
    )
    joined = JoinOn(ours, shared, "left" if outer else "inner", on, False)
    beyond = all_columns + len(columns_of(theirs))
    outputs = (*range(width), *range(all_columns + keys, beyond))
    return Let(number, theirs, Project(joined, outputs))


def _by_time(right: Relation, condition: _Condition) -> Relation:
    """Return one row of `right` for each key and time, which are the first columns."""
    columns = columns_of(right)
    added = AddedColumns(columns)
    places = [added.place(scalar) for scalar in condition.right]
    keyed = Project(added.relation(right), (*places, *range(len(columns))))
    types = condition.types
    known = [Call("is_not_null", (Column(i, type),), BOOL) for i, type in enumerate(types)]
    group = tuple(range(len(types)))
    return TopK(Filter(keyed, tuple(known)), group, (), Literal(1, INT8), None)


def _with_found(left: Relation, shared: Relation, condition: _Condition) -> Relation:
    """Return the rows of `left`, the keys and the time, and the time of `shared` found for each.

    The rows of both sides are in one window. At equal times, rows of `shared` come first if they
    are to be found.
    """
    width, keys, types = len(columns_of(left)), len(condition.types), condition.types
    ours, theirs = (1, 0) if condition.operator in ("ge", "le") else (0, 1)
    added = AddedColumns(columns_of(left))
    places = [added.place(scalar) for scalar in condition.left]
    rows = Project(added.relation(left), (*range(width), *places))
    none = Literal(None, types[-1])
    mine = Map(rows, (Literal(ours, INT4), none))
    nothing = tuple(Literal(None, column.type) for column in columns_of(left))
    given = Map(shared, (*nothing, Literal(theirs, INT4)))
    first = len(columns_of(shared))
    outputs = (*range(first, first + width), *range(keys), first + width, keys - 1)
    both = Union((mine, Project(given, outputs)))
    time = Column(width + keys - 1, types[-1])
    side, known = Column(width + keys, INT4, False), Column(width + keys + 1, types[-1])
    order = (OrderKey(time, condition.is_next), OrderKey(side))
    last = WindowFunction("last_known", (known,), types[-1])
    partition = tuple(range(width, width + keys - 1))
    found = Window(both, partition, order, (last,))
    kept = Filter(found, (Call("eq", (side, Literal(ours, INT4)), BOOL),))
    has_time = Call("is_not_null", (time,), BOOL)
    value = Case(((has_time, Column(width + keys + 2, types[-1])),), none, types[-1])
    return Project(Map(kept, (value,)), (*range(width + keys), width + keys + 3))
