"""SKIP LOCKED: reads a query's rows, then locks those that no other transaction has locked.

Rows are locked one by one, in the query's order, up to its LIMIT. The skipped rows are not part of
the answer, so the commit checks the locked rows and nothing else.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from foreshore.adapter.read.pipeline import read_batch
from foreshore.adapter.read.scalar_values import row_count_of
from foreshore.adapter.read.timestamp import move_forward
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.errors import ConcurrentUpdate
from foreshore.ids import GlobalId
from foreshore.sql.plan import Locking

ATTEMPTS = 10


async def read_unlocked(context: StatementContext, locking: Locking) -> pa.RecordBatch:
    """Return the query's rows that no other transaction has locked; they are locked now.

    Raises ConcurrentUpdate if rows keep changing between the read and their lock.
    """
    transaction, coordinator = context.transaction, context.coordinator
    (table,) = locking.tables
    index = None
    if table in coordinator.state.objects:
        await coordinator.keys.ready(table)
        index = _index(context, table, locking.key)
    width = len(locking.key)
    for _ in range(ATTEMPTS):
        read = set(transaction.read)
        rows = await read_batch(context)
        transaction.read = read
        limit = row_count_of(context, locking.limit, "LIMIT")
        offset = row_count_of(context, locking.offset, "OFFSET") or 0
        shown = rows.select(list(range(rows.num_columns - width)))
        if index is None:  # the transaction's own table
            return shown.slice(offset, limit)
        keys = _locks_of(index, rows.columns[rows.num_columns - width :])
        if not keys:  # the query may read nothing, at no time
            return shown
        places = list(_lock(context, keys, None if limit is None else limit + offset))
        locked = {keys[i] for i in places}
        time = transaction.time
        assert time is not None
        if not coordinator.keys.changed(frozenset(locked), time):
            transaction.read |= locked
            return shown.take(pa.array(np.array(places[offset:], np.int64)))
        move_forward(context)
        if transaction.time == time:
            break
    raise ConcurrentUpdate


def _index(context: StatementContext, table: GlobalId, key: tuple[int, ...]) -> KeyIndex | None:
    for each in context.planner.reader().planned[table].unique:
        if each.columns == key:
            return context.coordinator.keys.named(table, each)
    return None


def _locks_of(index: KeyIndex, columns: Sequence[pa.Array]) -> list[KeyLock]:
    """Return the lock of each row's key."""
    if not len(columns[0]):
        return []
    name = index.constraint.name
    return [KeyLock(index.table, name, hash) for hash in index.layout.hashes(columns).tolist()]


def _lock(context: StatementContext, keys: Sequence[KeyLock], most: int | None) -> Iterator[int]:
    """Lock up to `most` of the free `keys`; yield their positions."""
    locks, transaction = context.coordinator.locks, context.transaction
    count = 0
    for place, key in enumerate(keys):
        if count == most:
            return
        if locks.try_locks((), (key,), transaction):
            count += 1
            yield place
