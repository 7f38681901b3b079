"""Row locks, taken before a query is read: SELECT ... FOR UPDATE and its kin, and LOCK TABLE.

A query for literal values of a unique key of its one table locks these keys, as UPDATE does; any
other locks its tables. Both wait for the locks, or with NOWAIT raise 55P03. Then they read at the
newest time, if the transaction has read nothing else or what it has read is the same there. If a
row was changed after the time at which it has to be read, that is a conflict (40001). All strengths
lock as FOR UPDATE does.

SKIP LOCKED reads first, then locks the free rows one by one, in the query's order, up to its LIMIT.
The skipped rows are not part of the answer, so the commit checks the locked rows and nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from msgspec import structs

from foreshore.adapter.client import Completed
from foreshore.adapter.plans.locked_read import LockedRead
from foreshore.adapter.read.bound.bind import NOTHING_GIVEN, row_count_of
from foreshore.adapter.read.bound.timestamp import move_forward, tables_below
from foreshore.adapter.read.keys.key_lookup import locked_by_key, row_not_available
from foreshore.adapter.read.keys.locked_rows import locked_rows
from foreshore.adapter.read.keys.read_rows import rows_by_keys
from foreshore.adapter.read.pipeline import prepared_peek, read_batch
from foreshore.adapter.statement.context import StatementContext
from foreshore.compute.finish import batch_of_rows, expanded, finish
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_sets import keys_of
from foreshore.errors import ConcurrentUpdate, LockNotAvailable, NoActiveSqlTransaction
from foreshore.ids import GlobalId, is_user
from foreshore.sql.plan import Locking, LockTable
from foreshore.table_rows import Row

ATTEMPTS = 10  # to read and lock rows that keep changing, with SKIP LOCKED
AHEAD = 16  # rows that are read beyond the LIMIT, as others may have locked the first ones


async def lock_and_read(context: StatementContext, locking: Locking) -> pa.RecordBatch:
    """Return the finished rows of a SELECT, after its locks have been acquired."""
    transaction = context.transaction
    context.require_writable(f"SELECT {locking.strength}")
    if transaction.time is None:  # locked rows are the newest, at any isolation
        context = context.reading_newest()
    if locking.key:
        return await read_unlocked(context, locking)
    peek, tables = prepared_peek(context.prepared), _lockable(context, locking.tables)
    is_by_key = peek.key is not None and tables == {*peek.key.tables}
    if is_by_key and locking.wait != "skip" and not peek.query.row_outputs:
        found = await locked_by_key(context, peek, NOTHING_GIVEN, nowait=locking.wait == "error")
        if found is not None:
            _check_unchanged(context)
            return finish(expanded(*found), found[1])
    locked = await _lock_tables(context, tables, locking)
    read = context.prepared.made.programs.row_read
    tuples = None if read is None else await rows_by_keys(context, read)
    rows = (
        await read_batch(context)
        if tuples is None
        else batch_of_rows(tuples, peek.query.desc.columns)
    )
    return rows if locked else rows.slice(0, 0)  # a table without a key is skipped as a whole


async def lock_rows(
    context: StatementContext, locking: Locking, plan: LockedRead
) -> list[Row] | None:
    """Return the finished rows of a SELECT by keys, which are locked; None as `locked_rows` does.

    It locks tables, as `lock_and_read` does, if the clause is not about the one table of its rows.
    """
    if locking.tables != (plan.source.id,):
        return None
    context.require_writable(f"SELECT {locking.strength}")
    found = await locked_rows(context, plan, nowait=locking.wait == "error")
    if found is None:
        return None
    _check_unchanged(context)
    return found[1][0]


async def _lock_tables(context: StatementContext, tables: set[GlobalId], locking: Locking) -> bool:
    """Lock whole tables; return False if others hold locks and SKIP LOCKED is given."""
    transaction = context.transaction
    if locking.wait == "block":
        await context.tables.locks.acquire(tables, transaction, context.lock_timeout_ms)
    elif not await context.tables.locks.try_acquire(tables, transaction):
        if locking.wait == "skip":
            return False
        raise row_not_available(context.planner, min(tables))
    move_forward(context)
    group, time = context.tables.group, transaction.time
    if time is not None and any(id in group and group.changed(id) > time for id in tables):
        raise ConcurrentUpdate
    return True


def _check_unchanged(context: StatementContext) -> None:
    """Raise ConcurrentUpdate if a key that is locked and was read has changed since."""
    transaction = context.transaction
    assert transaction.time is not None
    lacking = context.tables.locks.lacking(transaction.keys_read, transaction)
    nothing: frozenset[int] = frozenset()
    locked = {
        place: hashes - lacking.get(place, nothing)
        for place, hashes in transaction.keys_read.items()
        if lacking.get(place, nothing) < hashes
    }
    if context.tables.keys.changed(locked, transaction.time):
        raise ConcurrentUpdate


def _lockable(context: StatementContext, ids: Sequence[GlobalId]) -> set[GlobalId]:
    """Return the committed tables below `ids`, without the system's, which no client may lock."""
    objects = context.names.state.objects
    return {id for id in tables_below(context, ids) if is_user(id) and id in objects}


# --- SKIP LOCKED ---------------------------------------------------------------------------


async def read_unlocked(context: StatementContext, locking: Locking) -> pa.RecordBatch:
    """Return the query's rows that no other transaction has locked; they are locked now.

    Rows that change between the read and their lock are read again, a few times, and then left out
    like locked ones. Raises ConcurrentUpdate if nothing else is left.
    """
    transaction = context.transaction
    (table,) = locking.tables
    index = None
    if table in context.names.state.objects:
        await context.tables.keys.ready(table)
        indexes = context.tables.keys.of(table).values()
        index = next((each for each in indexes if each.constraint.columns == locking.key), None)
    width = len(locking.key)
    limit = row_count_of(context, locking.limit, "LIMIT")
    offset = row_count_of(context, locking.offset, "OFFSET") or 0
    most = None if limit is None else limit + offset
    wanted = None if most is None else most + AHEAD
    for attempt in range(1, ATTEMPTS + 1):
        while True:
            reads = transaction.reads
            rows = await read_batch(context if wanted is None else _reading_first(context, wanted))
            transaction.read_only(reads)
            shown = rows.select(list(range(rows.num_columns - width)))
            if index is None:  # the transaction's own table
                return shown.slice(offset, limit)
            if not rows.num_rows:  # the query may read nothing, at no time
                return shown
            hashes = index.layout.hashes(rows.columns[rows.num_columns - width :]).tolist()
            places, met_changed = _lock(context, index, hashes, most)
            if wanted is None or rows.num_rows < wanted or len(places) == most:
                break
            wanted *= 4  # others have locked the first ones
        is_last = attempt == ATTEMPTS and len(places) > offset
        if not met_changed or len(places) == most or is_last:
            locked = keys_of(table, index.constraint.name, [hashes[i] for i in places])
            transaction.read_keys(locked)
            return shown.take(pa.array(np.array(places[offset:], np.int64)))
        time = transaction.time
        move_forward(context)
        if transaction.time == time:
            break
    raise ConcurrentUpdate


def _reading_first(context: StatementContext, count: int) -> StatementContext:
    """Return the context of the same statement, which reads the first rows only."""
    prepared, peek = context.prepared, prepared_peek(context.prepared)
    finishing = structs.replace(peek.query.finishing, limit=count)
    first = replace(peek, query=replace(peek.query, finishing=finishing))
    made = structs.replace(prepared.made, peek=first)
    return structs.replace(context, prepared=structs.replace(prepared, made=made))


def _lock(
    context: StatementContext, index: KeyIndex, hashes: Sequence[int], most: int | None
) -> tuple[list[int], bool]:
    """Lock up to `most` of the free keys with `hashes` that are as they were read.

    Return their positions, and whether some have changed.
    """
    transaction = context.transaction
    time = transaction.time
    assert time is not None
    places: list[int] = []
    met_changed = False
    for place, hash in enumerate(hashes):
        if len(places) == most:
            break
        key = keys_of(index.table, index.constraint.name, (hash,))
        if not context.tables.locks.try_locks((), key, transaction):
            continue
        if context.tables.keys.changed(key, time):
            met_changed = True
        else:
            places.append(place)
    return places, met_changed


# --- LOCK TABLE ----------------------------------------------------------------------------


async def lock_table(context: StatementContext, plan: LockTable) -> Completed:
    """Run LOCK TABLE; a mode conflicts with all writes of rows or with none, never with reads."""
    transaction, locks = context.transaction, context.tables.locks
    if context.alone:
        raise NoActiveSqlTransaction("LOCK TABLE can only be used in transaction blocks")
    for table in sorted(_lockable(context, plan.tables)):
        if not plan.nowait:
            await (
                locks.acquire((table,), transaction, context.lock_timeout_ms)
                if plan.exclusive
                else locks.acquire_beside(table, transaction, context.lock_timeout_ms)
            )
            continue
        locked = (
            await locks.try_acquire((table,), transaction)
            if plan.exclusive
            else locks.try_locks((), locks.beside(table, transaction), transaction)
        )
        if not locked:
            name = context.planner.state.item(table).name
            raise LockNotAvailable(f'could not obtain lock on relation "{name}"')
    move_forward(context)
    return Completed("LOCK TABLE")
