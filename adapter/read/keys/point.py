"""Changes of the row under one whole unique key, as a tuple: UPDATE and DELETE.

A `PointPlan` is made when the statement is prepared (`sql/rewrite/keyed_selection.py`).

`locked_row` returns None where the row has to be read another way
(`adapter/read/keys/key_lookup.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from foreshore.adapter.plans.access_path import PeekPlan
from foreshore.adapter.read.keys.key_lookup import Located, lock_and_find
from foreshore.adapter.read.timestamp import read_time
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.planned import Planned
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_sets import Keys
from foreshore.compute.keys.layout import takes_tuples
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.keyed_selection import KeyedSelection, compile_selection
from foreshore.table_rows import Row
from foreshore.types import Datum
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class PointPlan:
    """A selection from the row of `table` with one key."""

    table: GlobalId
    constraint: Unique
    planned: Planned  # the table as it was planned
    names: frozenset[str]  # of all its unique constraints
    selection: KeyedSelection


def plan_point(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> PointPlan | None:
    """Return `peek` compiled, if it is about one key and the table's keys can be tuples."""
    lookup, query = peek.key, peek.query
    step = None if lookup is None else lookup.named
    if lookup is None or step is None or step.constraint is None or step.sources:
        return None
    if len(step.keys) != 1:
        return None
    (key,) = step.keys
    if len(key) < len(step.columns) or query.changes or query.row_outputs:
        return None
    limits = (query.limit, query.offset, query.finishing.limit, query.finishing.offset or None)
    table = planned[step.table]
    if limits != (None,) * 4 or not all(takes_tuples(each, table.desc) for each in table.unique):
        return None
    selection = compile_selection(key, lookup.relation, query.finishing.project)
    if selection is None:
        return None
    names = frozenset(each.name for each in table.unique)
    return PointPlan(step.table, step.constraint, table, names, selection)


async def locked_row(context: StatementContext) -> list[tuple[Row, Row]] | None:
    """Return the row under the key of a statement that changes it, and its selected columns.

    The row is locked by all unique constraints of the table. The list is empty if there is none.
    """
    point = context.prepared.point
    if point is None:
        return None
    indexes = await indexes_of_point(context, point)
    index = indexes.get(point.constraint.name)
    if index is None:
        return None
    givens = _givens(context, point, context.coordinator.oracle.read_ts())
    key = point.selection.key(givens)
    if key is None:
        read_time(context, (point.table,), None, by_key=True)
        return []
    hash = index.layout.hash(key)
    wanted: Keys = {(point.table, point.constraint.name): {hash}}

    def find(time: Timestamp) -> Located[tuple[Timestamp, Row | None]] | None:
        found = _row(context, index, hash, key, time)
        if found is None:
            return None
        row = found[0]
        others = wanted if row is None or len(indexes) == 1 else _locks(point.table, indexes, row)
        return wanted, others, (time, row)

    found = await lock_and_find(context, point.table, wanted, find)
    if found is None:
        return None
    time, row = found
    if row is None:
        return []
    if point.selection.givens.names:
        givens = _givens(context, point, time)
    if not point.selection.may_be_selected(givens, row):
        return None
    selected = point.selection.selected(givens, row)
    return [] if selected is None else [(row, selected)]


async def indexes_of_point(context: StatementContext, point: PointPlan) -> Mapping[str, KeyIndex]:
    """Return the indexes of the table's keys; none if the table is not as it was planned."""
    coordinator = context.coordinator
    if context.transaction.catalog is not None:
        return {}
    await coordinator.keys.ready(point.table)
    if coordinator.catalog.planned.get(point.table) is not point.planned:
        return {}
    found = coordinator.keys.of(point.table)
    return found if found.keys() == point.names else {}


def _givens(context: StatementContext, point: PointPlan, time: Timestamp) -> list[Datum]:
    return point.selection.givens.values(context.args, context.session_value(time))


def _locks(table: GlobalId, indexes: Mapping[str, KeyIndex], row: Row) -> Keys:
    """Return all keys of a row."""
    return {
        (table, name): {index.layout.hash(key)}
        for name, index in indexes.items()
        if (key := index.layout.key(row)) is not None
    }


def _row(
    context: StatementContext, index: KeyIndex, hash: int, key: Row, time: Timestamp
) -> tuple[Row | None] | None:
    """Return the row under a key at `time`, in a tuple.

    None if it has been changed since, or the transaction has written rows that are no tuples.
    """
    written = context.transaction.rows(index.table)
    if written:
        own = written.by_key(index.layout).newest
        if own is None:
            return None
        if key in own:
            return (own[key],)
    entry = index.newest.newest(hash, key)
    if entry.time > time or not index.readable(time):
        return None
    return (entry.row,)
