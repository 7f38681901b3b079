"""The row under one whole key as a tuple: read, or locked to be changed.

Both functions return None where the row has to be read another way (`adapter/read/key_lookup.py`).
"""

from collections.abc import Mapping

from foreshore.adapter.read.point_plan import PointPlan
from foreshore.adapter.read.timestamp import move_forward, read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.compute.keys.key_index import NOTHING, KeyIndex
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.types import Datum
from foreshore.update import Timestamp


async def row_by_key(context: StatementContext, point: PointPlan) -> list[Row] | None:
    """Return the selected columns of the row under a key, if there is one."""
    index = (await _indexes(context, point)).get(point.constraint.name)
    if index is None or _own(context, index) is None:
        return None
    time = read_time(context, (point.table,), None, by_key=True)
    givens = _givens(context, point, time)
    key = point.key(givens)
    if key is None:
        return []
    hash = index.layout.hash(key)
    context.transaction.read.add(KeyLock(point.table, point.constraint.name, hash))
    found = _row(context, index, hash, key, time)
    if found is None:
        return None
    selected = None if found[0] is None else point.selected(givens, found[0])
    return [] if selected is None else [selected]


async def locked_row(context: StatementContext) -> list[tuple[Row, Row]] | None:
    """Return the row under the key of a statement that changes it, and its selected columns.

    The row is locked by all unique constraints of the table. The list is empty if there is none.
    """
    point, locks, transaction = (
        context.prepared.point,
        context.coordinator.locks,
        context.transaction,
    )
    if point is None:
        return None
    indexes = await _indexes(context, point)
    index = indexes.get(point.constraint.name)
    if index is None or _own(context, index) is None:
        return None
    givens = _givens(context, point, context.coordinator.oracle.read_ts())
    key = point.key(givens)
    if key is None:
        read_time(context, (point.table,), None, by_key=True)
        return []
    hash = index.layout.hash(key)
    wanted = frozenset([KeyLock(point.table, point.constraint.name, hash)])
    while True:
        if not locks.try_keys(wanted, transaction):
            await locks.acquire_keys(wanted, transaction, context.lock_timeout_ms)
        move_forward(context)
        time = read_time(context, (point.table,), None, by_key=True)
        transaction.read |= wanted
        found = _row(context, index, hash, key, time)
        if found is None:
            return None
        row = found[0]
        if row is None:
            return []
        others = wanted if len(indexes) == 1 else wanted | _locks(point.table, indexes, row)
        if others == wanted:
            break
        wanted = others
    selected = point.selected(_givens(context, point, time), row)
    return [] if selected is None else [(row, selected)]


async def _indexes(context: StatementContext, point: PointPlan) -> dict[str, KeyIndex]:
    """Return the indexes of the table's keys; none if the table is not as it was planned."""
    coordinator = context.coordinator
    if context.transaction.catalog is not None:
        return {}
    await coordinator.keys.ready(point.table)
    found = coordinator.keys.of(point.table)
    if coordinator.catalog.planned.get(point.table) is not point.planned:
        return {}
    indexes = {each.name: found[each.name] for each in point.unique if each.name in found}
    return indexes if len(indexes) == len(point.unique) == len(found) else {}


def _own(context: StatementContext, index: KeyIndex) -> Mapping[Row, Row | None] | None:
    """Return the rows that the transaction has written, by key; None if they are not tuples."""
    written = context.transaction.rows(index.table)
    return written.by_key(index.layout).newest if written else NOTHING


def _givens(context: StatementContext, point: PointPlan, time: Timestamp) -> list[Datum]:
    return point.givens.values(context.args, context.environment_values(time))


def _locks(table: GlobalId, indexes: dict[str, KeyIndex], row: Row) -> frozenset[KeyLock]:
    """Return the locks of a row by all keys of its table."""
    return frozenset(
        KeyLock(table, name, index.layout.hash(key))
        for name, index in indexes.items()
        if (key := index.layout.key(row)) is not None
    )


def _row(
    context: StatementContext, index: KeyIndex, hash: int, key: Row, time: Timestamp
) -> tuple[Row | None] | None:
    """Return the row under a key at `time`, in a tuple; None if it has been changed since."""
    own = _own(context, index)
    if own is None:
        return None
    if key in own:
        return (own[key],)
    entry = index.newest.newest(hash, key)
    if entry.time > time or not index.readable(time):
        return None
    return (entry.row,)
