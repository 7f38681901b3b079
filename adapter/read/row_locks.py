"""SELECT ... FOR UPDATE and its kin, and LOCK TABLE: locks before what they are for.

A query that fixes a whole key of its one table by literals locks these keys, as UPDATE does; any
other takes its tables. Both wait, or say at once that they would have to (55P03), and read when
they have the locks: at the newest time, if the transaction has read nothing else or what it has
read is the same there. What it finds was changed after the time at which it has to read is a
conflict (40001). FOR SHARE and its kin lock as FOR UPDATE does.

SKIP LOCKED takes the rows one by one, in the order of the query, and leaves out whose keys others
have. What it has left out is no part of its answer, so the commit asks about the rows that it has
locked and about nothing else.

Subqueries that lock are run as such queries before the statement they are in, which reads their
rows as collections that it alone knows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.read.by_key import bound_of, locked_by_key, row_not_available
from foreshore.adapter.read.peek import Given, result_of, rows_of, whole
from foreshore.adapter.read.times import move_forward, tables_below
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.adapter.write.tables import plan_of_table, unique_constraints
from foreshore.compute.engine import rows_schema
from foreshore.compute.finish import expanded, finish
from foreshore.compute.result import Result
from foreshore.errors import ConcurrentUpdate, LockNotAvailable, NoActiveSqlTransaction
from foreshore.ids import GlobalId, is_user
from foreshore.sql.plan import Locking, LockTable, Select

if TYPE_CHECKING:
    from foreshore.adapter.write.key_index import KeyIndex

ATTEMPTS = 10


async def selected_result(context: StatementContext, plan: Select) -> Result:
    """Return the finished rows of a SELECT, after what it locks has been locked."""
    if plan.locking is None:
        known = await found_by_init_plans(context)
        return await result_of(context, plan.as_of, known)
    return Result.of(await _locked_rows(context, plan.locking))


async def _locked_rows(context: StatementContext, locking: Locking) -> pa.RecordBatch:
    """Return the finished rows of a SELECT that locks them."""
    transaction = context.transaction
    transaction.require_writable(f"SELECT {locking.strength}")
    if transaction.time is None:  # who locks wants the newest, at any isolation
        transaction.isolation = "strict serializable"
    if locking.key:
        return await _unlocked_rows(context, locking)
    peek = context.prepared.peek
    assert peek is not None
    tables = _committed(context, locking.tables)
    if peek.key is not None and tables == {peek.key.table} and not peek.query.row_outputs:
        found = await locked_by_key(context, peek, nowait=locking.wait == "error")
        if found is not None:
            _refuse_changed(context)
            return finish(expanded(*found), found[1])
    if not await _take(context, tables, locking):
        assert locking.wait == "skip", locking
        rows = await rows_of(context)
        return rows.slice(0, 0)  # a table without a key is locked as a whole
    return await rows_of(context)


async def found_by_init_plans(context: StatementContext) -> Given:
    """Return the rows of the locking subqueries of a statement, which are locked now."""
    found = {}
    for id, each in context.prepared.init_plans:
        assert isinstance(each.plan, Select), each.plan
        rows = await whole(await selected_result(replace(context, prepared=each), each.plan))
        schema = rows_schema(each.plan.desc.columns)
        found[id] = pa.Table.from_arrays(rows.columns, schema=schema)
    return found


async def _take(context: StatementContext, tables: set[GlobalId], locking: Locking) -> bool:
    """Take whole tables; False if others have them and they are to be left out."""
    transaction, coordinator = context.transaction, context.coordinator
    if locking.wait == "block":
        await coordinator.locks.acquire(tables, transaction)
    elif not await coordinator.locks.try_acquire(tables, transaction):
        if locking.wait == "skip":
            return False
        raise row_not_available(context, min(tables))
    move_forward(context)
    group, time = coordinator.group, transaction.time
    if time is not None and any(id in group and group.changed(id) > time for id in tables):
        raise ConcurrentUpdate
    return True


def _refuse_changed(context: StatementContext) -> None:
    """Raise ConcurrentUpdate if a key that is locked and has been read is another by now."""
    coordinator, transaction = context.coordinator, context.transaction
    assert transaction.time is not None
    locked = {key for key in transaction.key_reads if coordinator.locks.holds((key,), transaction)}
    if coordinator.keys.changed(frozenset(locked), transaction.time):
        raise ConcurrentUpdate


def _committed(context: StatementContext, ids: Sequence[GlobalId]) -> set[GlobalId]:
    """Return the tables that `ids` come from, but for those that nobody else knows.

    Nor are the system's own among them: no client may keep the system from writing.
    """
    return {
        id
        for id in tables_below(context, ids)
        if is_user(id) and id in context.coordinator.state.objects
    }


# --- SKIP LOCKED ---------------------------------------------------------------------------


async def _unlocked_rows(context: StatementContext, locking: Locking) -> pa.RecordBatch:
    """Return the rows of a query that nobody else has, up to its LIMIT; they are locked."""
    transaction, coordinator = context.transaction, context.coordinator
    (table,) = locking.tables
    index = None
    if table in coordinator.state.objects:
        await coordinator.keys.ready(table)
        index = _index(context, table, locking.key)
    width = len(locking.key)
    for _ in range(ATTEMPTS):
        read, key_reads = set(transaction.read), set(transaction.key_reads)
        rows = await rows_of(context)
        transaction.read, transaction.key_reads = read, key_reads
        limit = bound_of(context, locking.limit, "LIMIT")
        offset = bound_of(context, locking.offset, "OFFSET") or 0
        shown = rows.select(list(range(rows.num_columns - width)))
        if index is None:  # the transaction's own table
            return shown.slice(offset, limit)
        keys = _keys(index, rows.columns[rows.num_columns - width :])
        if not keys:  # of what cannot have rows nothing is read, at no time
            return shown
        taken = list(_taken(context, keys, None if limit is None else limit + offset))
        locked = {keys[i] for i in taken}
        time = transaction.time
        assert time is not None
        if not coordinator.keys.changed(frozenset(locked), time):
            transaction.key_reads |= locked
            places = np.array(taken[offset:], np.int64)
            return shown.take(pa.array(places))
        move_forward(context)
        if transaction.time == time:
            break
    raise ConcurrentUpdate


def _index(context: StatementContext, table: GlobalId, key: tuple[int, ...]) -> "KeyIndex | None":
    for each in unique_constraints(plan_of_table(context, table)):
        if each.columns == key:
            return context.coordinator.keys.named(table, each)
    return None


def _keys(index: "KeyIndex", columns: Sequence[pa.Array]) -> list[KeyLock]:
    if not len(columns[0]):
        return []
    name = index.constraint.name
    return [KeyLock(index.table, name, hash) for hash in index.hashes_of(columns)]


def _taken(context: StatementContext, keys: Sequence[KeyLock], most: int | None) -> Iterator[int]:
    """Lock up to `most` of `keys` that nobody has; yield their places."""
    locks, transaction = context.coordinator.locks, context.transaction
    count = 0
    for place, key in enumerate(keys):
        if count == most:
            return
        if locks.try_locks((), (key,), transaction):
            count += 1
            yield place


# --- LOCK TABLE ----------------------------------------------------------------------------


async def lock_table(context: StatementContext, plan: LockTable) -> Completed:
    """Run LOCK TABLE.

    The modes that conflict with a write of rows are one here, and so are those that do not; who
    reads never waits.
    """
    transaction, locks = context.transaction, context.coordinator.locks
    if context.alone and not transaction.block:
        raise NoActiveSqlTransaction("LOCK TABLE can only be used in transaction blocks")
    tables = sorted(_committed(context, plan.tables))
    for table in tables:
        if not plan.nowait:
            await (
                locks.acquire((table,), transaction)
                if plan.exclusive
                else locks.acquire_beside(table, transaction)
            )
            continue
        beside = locks.beside(table, transaction)
        got = (
            await locks.try_acquire((table,), transaction)
            if plan.exclusive
            else locks.try_locks((), (beside,), transaction)
        )
        if not got:
            name = context.planner.state.item(table).name
            raise LockNotAvailable(f'could not obtain lock on relation "{name}"')
    move_forward(context)
    return Completed("LOCK TABLE")
