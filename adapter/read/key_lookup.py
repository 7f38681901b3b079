"""Rows by literal keys from a table's key index, on the event loop and without a replica.

The rows are those at the transaction's time with its own writes; AS OF another time without them. A
statement that changes rows locks their keys first: the keys of the rows as they are when it has the
locks, under all unique constraints of the table.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from foreshore.adapter.read.access_path import KeyLookup, Keys, PeekPlan
from foreshore.adapter.read.bind import BoundPeek, bound_finishing
from foreshore.adapter.read.timestamp import move_forward, read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.compute.arrange.key import Words, key_words
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.local.linear import evaluate_linear
from foreshore.constraint import Unique
from foreshore.errors import LockNotAvailable, TableAltered
from foreshore.expr.datum import to_array
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Finishing, Literal, Scalar
from foreshore.expr.scalars import Replace, bind_scalar
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.update import Timestamp

LiteralKeys: TypeAlias = tuple[tuple[Literal, ...], ...]
R = TypeVar("R")
KeyLocks: TypeAlias = frozenset[KeyLock]
Located: TypeAlias = tuple[KeyLocks, KeyLocks, R]  # keys looked up; all keys of the rows; rows
Found: TypeAlias = tuple[KeyLocks, pa.RecordBatch]  # locks of the keys looked up; rows


async def can_look_up(context: StatementContext, lookup: KeyLookup, time: Timestamp | None) -> bool:
    """Whether the key index exists and knows the rows at `time`; None is the newest time."""
    index = await _index(context, lookup.table, lookup.constraint)
    return index is not None and (time is None or index.readable(time))


def look_up(context: StatementContext, bound: BoundPeek, lookup: KeyLookup) -> pa.Table:
    """Return the rows of a bound key lookup, with `__diff`."""
    index = context.coordinator.keys.named(lookup.table, lookup.constraint)
    if index is None or not index.readable(bound.time):
        raise TableAltered()
    keys = literal_keys(lookup.keys, bound.bindings)
    locks, found = _find(context, index, keys, bound.time, own=bound.own)
    if bound.own:
        context.transaction.read |= locks
    return evaluate_linear(lookup.relation, {lookup.table: counted(found)})


async def locked_by_key(
    context: StatementContext, plan: PeekPlan, *, nowait: bool = False
) -> tuple[pa.Table, Finishing] | None:
    """Return the rows, with `__diff`, of a key lookup, whose keys are locked; and the finishing.

    None if the key index does not exist or does not know the time. Raises LockNotAvailable if a key
    is locked and `nowait`.
    """
    lookup = plan.key
    assert lookup is not None
    index = await _index(context, lookup.table, lookup.constraint)
    if index is None:
        return None

    def find(time: Timestamp) -> Found:
        return _find(context, index, literal_keys(lookup.keys, context.bindings(time)), time)

    keys = literal_keys(lookup.keys, context.bindings(context.coordinator.oracle.read_ts()))
    rows = await _locked(context, index, _locks_of(index, keys), find, nowait=nowait)
    if rows is None:
        return None
    assert context.transaction.time is not None
    relation = bind_relation(lookup.relation, context.bindings(context.transaction.time))
    found = evaluate_linear(relation, {lookup.table: counted(rows)})
    return found, bound_finishing(context, plan.query)


async def locked_rows(
    context: StatementContext, table: GlobalId, constraint: Unique, keys: Sequence[pa.Array]
) -> pa.Table | None:
    """Return the rows, each once, of a table under `keys`, columns without NULL; they are locked.

    None if the key index does not exist or does not know the time.
    """
    index = await _index(context, table, constraint)
    if index is None:
        return None
    locks = _key_locks(index, index.layout.hashes(keys))

    def find(time: Timestamp) -> Found:
        written = context.transaction.rows(table)
        _, found = index.find(keys, time, written.by_key(index.layout))
        hashes = index.layout.hashes_of_rows(found)
        _, firsts = np.unique(hashes, return_index=True)  # `keys` may repeat a key
        return locks, found.take(pa.array(firsts))

    rows = await _locked(context, index, locks, find)
    return None if rows is None else pa.Table.from_batches([rows])


async def _locked(
    context: StatementContext,
    index: KeyIndex,
    locks: KeyLocks,
    find: Callable[[Timestamp], Found],
    *,
    nowait: bool = False,
) -> pa.RecordBatch | None:
    """Return the rows found after their keys have been locked; see `locked_by_key`."""

    def find_all(time: Timestamp) -> Located[pa.RecordBatch] | None:
        if not index.readable(time):
            return None
        read, rows = find(time)
        indexes = context.coordinator.keys.of(index.table)
        others = [locks_of_rows(each, rows) for each in indexes.values() if len(indexes) > 1]
        return read, read.union(*others), rows

    return await lock_and_find(context, index.table, locks, find_all, nowait=nowait)


async def lock_and_find(
    context: StatementContext,
    table: GlobalId,
    wanted: KeyLocks,
    find: Callable[[Timestamp], Located[R] | None],
    *,
    nowait: bool = False,
) -> R | None:
    """Return the rows that `find` returns at the newest time, after their keys have been locked.

    The keys `wanted` are locked first. If the rows have other keys, these are locked too, and the
    rows are read again. Return None if `find` does: it does not know the time.
    """
    locks, transaction = context.coordinator.locks, context.transaction
    while True:
        if nowait:
            if not locks.try_locks((), wanted, transaction):
                raise row_not_available(context, table)
        elif not locks.try_keys(wanted, transaction):
            await locks.acquire_keys(wanted, transaction, context.lock_timeout_ms)
        move_forward(context)
        found = find(read_time(context, (table,), None, by_key=True))
        if found is None:
            return None
        read, needed, rows = found
        transaction.read |= read
        if needed <= wanted:
            return rows
        wanted |= needed


def row_not_available(context: StatementContext, table: GlobalId) -> LockNotAvailable:
    """Return the error of NOWAIT for a row that is locked."""
    name = context.planner.state.item(table).name
    return LockNotAvailable(f'could not obtain lock on row in relation "{name}"')


def locks_of_rows(index: KeyIndex, rows: pa.RecordBatch) -> KeyLocks:
    """Return the locks of the keys of rows."""
    return _key_locks(index, index.layout.key_hashes(rows))


def literal_keys(keys: Keys, bindings: Replace) -> LiteralKeys:
    """Return the bound keys, each once; those with NULL or out of range are left out."""
    found: dict[tuple[int, ...], tuple[Literal, ...]] = {}
    for key in keys:
        literals = [_literal(scalar, bindings) for scalar in key]
        present = tuple(each for each in literals if each is not None)
        if len(present) == len(literals):
            words = key_words([each.value for each in present], [each.type for each in present])
            if words is not None:
                found.setdefault(words, present)
    return tuple(found.values())


def _literal(scalar: Scalar, bindings: Replace) -> Literal | None:
    """Return the value of a part of a key; None if it is out of the type's range."""
    value = bind_scalar(scalar, bindings)
    if isinstance(value, Literal):
        return value
    found = constant(value)
    return None if isinstance(found, str) else found


async def _index(context: StatementContext, table: GlobalId, constraint: Unique) -> KeyIndex | None:
    await context.coordinator.keys.ready(table)
    return context.coordinator.keys.named(table, constraint)


def _find(
    context: StatementContext,
    index: KeyIndex,
    keys: LiteralKeys,
    time: Timestamp,
    *,
    own: bool = True,
) -> Found:
    """Return the locks of `keys`, and the rows at `time` under them."""
    written = context.transaction.rows(index.table)
    if own and written and keys:
        _, rows = index.find(_columns(keys), time, written.by_key(index.layout))
    else:
        values = [tuple(each.value for each in key) for key in keys]
        rows = index.settled().look_up(values, time)
    return _locks_of(index, keys), rows


def _locks_of(index: KeyIndex, keys: LiteralKeys) -> KeyLocks:
    return _key_locks(index, index.layout.hashes(_columns(keys))) if keys else frozenset()


def _key_locks(index: KeyIndex, hashes: Words) -> KeyLocks:
    name = index.constraint.name
    return frozenset(KeyLock(index.table, name, hash) for hash in hashes.tolist())


def _columns(keys: LiteralKeys) -> list[pa.Array]:
    return [
        to_array([each.value for each in part], part[0].type) for part in zip(*keys, strict=True)
    ]
