"""Find the keys of rows that a statement can change, before the table is read.

    MERGE INTO t USING (VALUES (1, 'x'), ($1, 'y')) AS s (k, v) ON t.k = s.k AND t.v <> s.v
    UPDATE t SET v = s.v FROM (VALUES (1, 'x'), ($1, 'y')) AS s (k, v) WHERE t.k = s.k
    DELETE FROM t WHERE k IN (VALUES (1), ($1))

These change only rows of t with k = 1 or k = $1. The keys are known if the source reads nothing, or
only the results of init plans, and nothing else in it reads a table. The keys are locked first,
which may take time. So the source must not contain values that change meanwhile, such as mz_now().
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from foreshore.constraint import Unique
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    And,
    AnySubquery,
    Call,
    Case,
    Column,
    Exists,
    Filter,
    Get,
    Literal,
    Map,
    OuterColumn,
    Project,
    Relation,
    Scalar,
    ScalarSubquery,
)
from foreshore.expr.scalars import scalars_of
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.result import lower_and_optimize
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.sql.bind.with_clause import Lets, with_lets
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.optimize.key_steps import may_change_while_waiting
from foreshore.sql.optimize.lookup import RANGES, is_widening
from foreshore.sql.optimize.nullability import strict_in
from foreshore.sql.optimize.scalars import conjuncts
from foreshore.sql.plan import ChangedKeys
from foreshore.sql.rewrite.scalars import is_closed, map_scalar, relations_within
from foreshore.types import BOOL, SqlType

_TEXTS = ("text", "varchar")


@dataclass(frozen=True, slots=True)
class Link:
    """Equalities of columns of the table with scalars over the rows of a source.

    If they are the whole condition, `rest` are the table's rows that satisfy the other conditions.
    `single`: several rows of the source are an error.
    """

    source: Relation
    values: dict[int, Scalar]
    rest: Relation | None = None
    single: bool = False


def linked(
    item: ItemView, at: int, source: Relation, source_at: int, predicates: tuple[Scalar, ...]
) -> Link:
    """Return the equalities between rows of the table and of `source` in `predicates`.

    `at` and `source_at` are the positions of the first columns of the two in the joined row.
    """
    columns = item.desc.columns
    end = source_at + len(columns_of(source))
    values: dict[int, Scalar] = {}
    for one, other in _equalities(predicates):
        place = _column(one)
        used = columns_used(other)
        if place is None or not 0 <= place - at < len(columns):
            continue
        if not all(source_at <= index < end for index in used):
            continue
        narrowed = _as_key(_moved(other, -source_at), columns[place - at].type)
        if narrowed is not None:
            values.setdefault(place - at, narrowed)
    return Link(source, values)


def links_within(item: ItemView, table: Relation, condition: Scalar) -> Iterator[Link]:
    """Yield the links that IN and = of subqueries in `condition` give for rows of `table`.

    The row begins with the columns of `item`.
    """
    columns = item.desc.columns
    predicates = conjuncts((condition,))
    for i, predicate in enumerate(predicates):
        others = (*predicates[:i], *predicates[i + 1 :])
        rest = None
        if not any(map(has_subquery, others)):
            rest = Filter(table, others) if others else table
        match predicate:
            case AnySubquery(predicate=inner, relation=source) if is_closed(source):
                values: dict[int, Scalar] = {}
                for one, other in _equalities((inner,)):
                    place = _outer_column(one)
                    if place is None or place >= len(columns) or _is_correlated(other):
                        continue
                    narrowed = _as_key(other, columns[place].type)
                    if narrowed is not None:
                        values.setdefault(place, narrowed)
                is_all = len(values) == len(conjuncts((inner,)))
                yield Link(source, values, rest if is_all else None)
            case Call(function="eq"):
                for one, other in _equalities((predicate,)):
                    place, subquery = _column(one), _subquery(other)
                    if place is None or place >= len(columns) or subquery is None:
                        continue
                    value = map_scalar(
                        other,
                        lambda node, _: (
                            Column(0, node.type) if isinstance(node, ScalarSubquery) else None
                        ),
                    )
                    narrowed = _as_key(value, columns[place].type)
                    if narrowed is not None and 0 in strict_in(value):  # NULL if there is no row
                        yield Link(subquery.relation, {place: narrowed}, rest, single=True)


def keys_of(
    planning: Planning,
    item: ItemView,
    links: Iterable[Link],
    whole: Relation,
    lets: Lets = (),
    select: Callable[[Relation], Relation] | None = None,
) -> ChangedKeys | None:
    """Return the first of `links` over a unique key of the table as changed keys, or None.

    `whole` is everything that the statement reads except the queries of its WITH, `lets`. `select`
    computes the statement's selection from the qualifying rows; it is None if that has side
    effects.
    """
    given = {each.id for each in (planning.init_plans or {}).values()}
    given |= {each.id for each in planning.written.values()}
    keys = [set(each.columns) for each in item.constraints if isinstance(each, Unique)]
    for link in links:
        source = with_lets(lets, link.source)
        scalars = [*link.values.values(), *_scalars(source)]
        if any(map(_is_unstable, scalars)) or not any(key <= link.values.keys() for key in keys):
            continue
        if [id for id in _read(with_lets(lets, whole)) if id not in given] != [item.id]:
            return None
        width = len(columns_of(link.source))
        outputs = tuple(range(width, width + len(link.values)))
        rows = Project(Map(link.source, tuple(link.values.values())), outputs)
        named = lower_and_optimize(with_lets(lets, rows), is_maintained=False)
        found = ChangedKeys(tuple(link.values), named)
        if (
            link.rest is None
            or select is None
            or not any(key == link.values.keys() for key in keys)
        ):
            return found
        under = lower_and_optimize(with_lets(lets, select(link.rest)), is_maintained=False)
        return replace(found, under=under, single=link.single)
    return None


def _read(relation: Relation) -> list[GlobalId]:
    """Return the collections that a bound relation reads, with repetitions."""
    return [each.id for each in relations_within(relation) if isinstance(each, Get)]


def _scalars(relation: Relation) -> list[Scalar]:
    return [scalar for node in walk_relations(relation) for scalar in scalars_of(node)]


def _is_unstable(scalar: Scalar) -> bool:
    """Return whether evaluating `scalar` again or later may have effects or another result."""
    return (
        has_side_effects(scalar)
        or has_subquery(scalar)
        or any(map(may_change_while_waiting, walk_scalars(scalar)))
    )


def _equalities(predicates: tuple[Scalar, ...]) -> Iterator[tuple[Scalar, Scalar]]:
    for predicate in conjuncts(predicates):
        match predicate:
            case Call(function="eq", args=(one, other)):
                yield one, other
                yield other, one
            case _:
                continue


def _moved(scalar: Scalar, by: int) -> Scalar:
    """Return `scalar` over a row that begins at another position."""

    def replace(node: Scalar, depth: int) -> Scalar | None:
        if isinstance(node, Column) and depth == 0:
            return Column(node.index + by, node.type, node.nullable)
        return None

    return map_scalar(scalar, replace)


def _widened(scalar: Scalar) -> Scalar:
    """Return `scalar` without widening casts."""
    while isinstance(scalar, Call) and is_widening(scalar.function):
        (scalar,) = scalar.args
    return scalar


def _column(scalar: Scalar) -> int | None:
    """Return the column below widening casts, or None."""
    bare = _widened(scalar)
    return bare.index if isinstance(bare, Column) else None


def _outer_column(scalar: Scalar) -> int | None:
    """Return the outer column below widening casts, or None."""
    bare = _widened(scalar)
    return bare.index if isinstance(bare, OuterColumn) and bare.level == 1 else None


def _is_correlated(scalar: Scalar) -> bool:
    return any(isinstance(each, OuterColumn) for each in walk_scalars(scalar))


def _subquery(scalar: Scalar) -> ScalarSubquery | None:
    """Return the only subquery of `scalar` if it is uncorrelated, otherwise None."""
    leaves = list(walk_scalars(scalar))
    found = [each for each in leaves if isinstance(each, ScalarSubquery)]
    if any(isinstance(each, Column | OuterColumn | Exists | AnySubquery) for each in leaves):
        return None
    return found[0] if len(found) == 1 and is_closed(found[0].relation) else None


def _as_key(value: Scalar, type: SqlType) -> Scalar | None:
    """Return `value` in the type of a key, NULL if no key equals it, None if unknown."""
    given = type_of(value)
    if given == type or (given.name in _TEXTS and type.name in _TEXTS):
        return value
    if RANGES.get(given.name, 0) <= RANGES.get(type.name, 64):
        return None
    most = 2 ** RANGES[type.name]
    fits = And(
        (
            Call("ge", (value, Literal(-most, given)), BOOL),
            Call("lt", (value, Literal(most, given)), BOOL),
        )
    )
    cast = Call(f"cast({given.name},{type.name})", (value,), type)
    return Case(((fits, cast),), Literal(None, type), type)
