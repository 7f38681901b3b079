"""Bound queries: relations with outputs, an order and a limit.

The relation of a bound query may have columns for its order besides the query's own, which are
`project`. ORDER BY and LIMIT are kept apart: at the top they finish the result, elsewhere
`plain_relation` turns them into a TopK.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foreshore.digits import is_digits
from foreshore.errors import (
    AmbiguousColumn,
    InvalidColumnReference,
    SyntaxError_,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.functions.comparison import check_equality, check_ordering
from foreshore.expr.ir import (
    And,
    Column,
    Filter,
    Map,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    TopK,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations
from foreshore.sql import ast
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.sql.bind.planning import located
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.types import ColumnType, ResultOrigin, SqlType

Body = ast.Select | ast.Values | ast.SetOperation | ast.Query
Wanted = Sequence[SqlType] | None  # types that outputs of unknown type take


@dataclass
class BoundQuery:
    """A query as a relation, with the order and limit still to be applied."""

    relation: Relation
    project: tuple[int, ...]
    names: tuple[str, ...]
    order_by: tuple[OrderKey, ...] = ()
    limit: Scalar | None = None
    offset: Scalar | None = None
    offsets: tuple[int, ...] = ()  # offsets of the output columns, if they are in the text
    scope: Scope | None = None  # the scope that LIMIT must not use
    partial: RowOrder = UNORDERED  # a partial order of the rows, if there is no `order_by`
    origins: tuple[ResultOrigin, ...] = ()  # of the output columns, if one has any


@dataclass
class Branch:
    """An operand of a set operation: outputs over a relation, possibly of unknown type."""

    relation: Relation
    outputs: tuple[Scalar, ...]
    names: tuple[str, ...]
    offsets: tuple[int, ...]


def plain_relation(bound: BoundQuery) -> Relation:
    """Return the query as a relation with exactly its own columns."""
    relation = _limited(bound)
    if bound.project == tuple(range(len(columns_of(relation)))):
        return relation
    return Project(relation, bound.project)


def ordered_relation(bound: BoundQuery) -> tuple[Relation, RowOrder]:
    """Return the query's columns followed by those of its order, and the order."""
    relation = _limited(bound)
    order = RowOrder(bound.order_by) if bound.order_by else bound.partial
    if order.keys and _acts(relation):
        order = UNORDERED  # rows are not sorted by values that are computed last
    outputs, order = order.placed(bound.project)
    if outputs == tuple(range(len(columns_of(relation)))):
        return relation, order
    return Project(relation, outputs), order


def _acts(relation: Relation) -> bool:
    return any(
        has_side_effects(scalar) for node in walk_relations(relation) for scalar in scalars_of(node)
    )


def with_called_limit(bound: BoundQuery) -> BoundQuery:
    """Return the query with a limit or offset that calls functions in its relation.

    The calls are made before the rows are read, as all calls are that are made once.
    """
    counts = (bound.limit, bound.offset)
    if not any(count is not None and has_side_effects(count) for count in counts):
        return bound
    return replace(bound, relation=_limited(bound), limit=None, offset=None)


def relation_and_order(bound: BoundQuery) -> tuple[Relation, tuple[OrderKey, ...]]:
    """Return the query as a relation with its ordering columns, and the order."""
    return _limited(bound), bound.order_by


def _limited(bound: BoundQuery) -> Relation:
    if bound.limit is None and bound.offset is None:
        return bound.relation
    return TopK(bound.relation, (), bound.order_by, bound.limit, bound.offset)


def distinct(relation: Relation) -> Relation:
    """Return the relation with duplicates removed."""
    columns = columns_of(relation)
    for column in columns:
        check_equality(column.type)
    return Reduce(relation, tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns)), ())


def project(relation: Relation, scalars: Sequence[Scalar]) -> Relation:
    """Return the relation that consists of `scalars`."""
    placing = AddedColumns(columns_of(relation))
    positions = tuple(map(placing.place, scalars))
    relation = placing.relation(relation)
    if positions == tuple(range(placing.width)):
        return relation
    return Project(relation, positions)


@dataclass
class AddedColumns:
    """Columns added to those of a relation, each computed once."""

    columns: Sequence[ColumnType]
    added: list[Scalar] = field(default_factory=list)
    places: dict[Scalar, int] = field(default_factory=dict)  # of those added by `place`

    @property
    def width(self) -> int:
        """Return the number of columns, with those added."""
        return len(self.columns) + len(self.added)

    def place(self, scalar: Scalar) -> int:
        """Return the position of `scalar`, adding it if necessary."""
        if isinstance(scalar, Column):
            return scalar.index
        place = self.places.get(scalar)
        if place is None:
            place = self.places[scalar] = self.width
            self.added.append(scalar)
        return place

    def relation(self, input: Relation) -> Relation:
        """Return `input` with the added columns."""
        return Map(input, tuple(self.added)) if self.added else input


def filtered(relation: Relation, condition: Scalar) -> Relation:
    """Return the rows for which `condition` is TRUE."""
    predicates: list[Scalar] = []
    stack = [condition]
    while stack:
        scalar = stack.pop()
        if isinstance(scalar, And):
            stack.extend(reversed(scalar.args))
        else:
            predicates.append(scalar)
    return Filter(relation, tuple(predicates))


def order_key(key: ast.SortKey, scalar: Scalar) -> OrderKey:
    """Return the sort key as an `OrderKey`."""
    with located(key.at):
        check_ordering(type_of(scalar))
    nulls_first = key.descending if key.nulls_first is None else key.nulls_first
    return OrderKey(scalar, key.descending, nulls_first)


def output_index(
    expr: ast.Expression, names: Sequence[str], outputs: Sequence[Scalar], clause: str
) -> int | None:
    """Return the output that an ordinal or alias in ORDER BY or GROUP BY refers to, or None."""
    match expr:
        case ast.Number(text=text) if text.startswith("+"):  # a call of the operator
            return None
        case ast.Number(text=text, at=at):
            digits = text.lstrip("-0") or "0"
            if not is_digits(digits) or len(digits) > 10 or int(digits) >= 1 << 31:
                raise SyntaxError_(f"non-integer constant in {clause}", position=at + 1)
            if not 1 <= int(text) <= len(names):
                raise InvalidColumnReference(
                    f"{clause} position {text} is not in select list", position=at + 1
                )
            return int(text) - 1
        case ast.String(at=at) | ast.Boolean(at=at) | ast.Null(at=at):
            raise SyntaxError_(f"non-integer constant in {clause}", position=at + 1)
        case ast.ColumnRef(parts=(name,), at=at):
            found = [i for i, other in enumerate(names) if other == name]
            if not found:
                return None
            if any(outputs[i] != outputs[found[0]] for i in found):
                raise AmbiguousColumn(f'{clause} "{name}" is ambiguous', position=at + 1)
            return found[0]
        case _:
            return None
