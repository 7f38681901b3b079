"""Which rows of its table a MERGE can change, where that is known from its source alone.

    MERGE INTO t USING (VALUES (1, 'x'), ($1, 'y')) AS s (k, v) ON t.k = s.k AND t.v <> s.v

changes no row of t but those with k = 1 or k = $1. That is known before t is read if the source
reads nothing, and if nothing else in the statement reads the table.
"""

from collections.abc import Sequence

from foreshore.expr.ir import (
    And,
    Call,
    Case,
    Column,
    Get,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
    columns_of,
    scalars_of,
    type_of,
    walk_relations,
)
from foreshore.expr.split import columns_used
from foreshore.ids import GlobalId
from foreshore.sql.bind.acting import acts
from foreshore.sql.bind.result import lowered
from foreshore.sql.bind.with_clause import Lets, with_lets
from foreshore.sql.lower_outer import has_subquery
from foreshore.sql.optimize.lookup import RANGES, is_widening
from foreshore.sql.optimize.scalars import conjuncts
from foreshore.sql.plan import MergeKeys
from foreshore.types import BOOL, ColumnType, SqlType

_TEXTS = ("text", "varchar")


def keys_of(
    table: GlobalId,
    columns: Sequence[ColumnType],
    source: Relation,
    on: Scalar,
    whole: Relation,
    lets: Lets,
) -> MergeKeys | None:
    """Return what rows of `source` say of columns of the table by `on`; None: nothing for sure.

    In `on` the table's columns come behind the source's. `whole` is all that the statement reads,
    beside the queries of its WITH, `lets`.
    """
    alone = with_lets(lets, source)
    if not _reads_only(with_lets(lets, whole), table) or any(map(_is_unsure, _scalars(alone))):
        return None
    start = len(columns_of(source))
    found: dict[int, Scalar] = {}
    for predicate in conjuncts((on,)):
        match predicate:
            case Call(function="eq", args=(one, other)):
                for a, value in ((one, other), (other, one)):
                    place = _column(a)
                    if (
                        place is None
                        or place < start
                        or max(columns_used(value), default=0) >= start
                    ):
                        continue
                    narrowed = _as_key(value, columns[place - start].type)
                    if narrowed is not None and not _is_unsure(value):
                        found.setdefault(place - start, narrowed)
            case _:
                continue
    if not found:
        return None
    keys = Project(Map(source, tuple(found.values())), tuple(range(start, start + len(found))))
    return MergeKeys(tuple(found), lowered(with_lets(lets, keys)))


def _scalars(relation: Relation) -> list[Scalar]:
    return [scalar for node in walk_relations(relation) for scalar in scalars_of(node)]


def _is_unsure(scalar: Scalar) -> bool:
    """Whether `scalar` must not be computed once more, or not without reading."""
    return acts(scalar) or has_subquery(scalar)


def _reads_only(whole: Relation, table: GlobalId) -> bool:
    """Whether `table` is read once, and nothing else."""
    read = [node.id for node in walk_relations(whole) if isinstance(node, Get)]
    return read == [table] and not any(map(has_subquery, _scalars(whole)))


def _column(scalar: Scalar) -> int | None:
    """Return the column that `scalar` is but for a widening."""
    while isinstance(scalar, Call) and is_widening(scalar.function):
        (scalar,) = scalar.args
    return scalar.index if isinstance(scalar, Column) else None


def _as_key(value: Scalar, type: SqlType) -> Scalar | None:
    """Return `value` as one of a key's type, NULL where none equals it; None: that is not known."""
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
