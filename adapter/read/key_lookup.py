"""Rows by literal keys from a table's key index, on the event loop and without a replica.

The rows are those at the transaction's time with its own writes; AS OF another time without them. A
statement that changes rows locks their keys first: the keys of the rows as they are when it has the
locks, under all unique constraints of the table.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from foreshore.adapter.read.access_path import KeyLookup, Keys, PeekPlan
from foreshore.adapter.read.bind import BoundPeek, bound_finishing
from foreshore.adapter.read.timestamp import move_forward, read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.compute.arrange.key import key_words
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.local.linear import evaluate_linear
from foreshore.constraint import Unique
from foreshore.errors import LockNotAvailable, TableAltered
from foreshore.expr.datum import to_array
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Finishing, Literal, Scalar
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.sql.rewrite.bind_parameters import Replace, bind_relation, bind_scalar
from foreshore.update import Timestamp

LiteralKeys = tuple[tuple[Literal, ...], ...]
Found = tuple[frozenset[KeyLock], pa.RecordBatch]  # locks of the keys looked up; rows


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
    return evaluate_linear(relation, {lookup.table: counted(rows)}), bound_finishing(
        context, plan.query
    )


async def locked_rows(
    context: StatementContext, table: GlobalId, constraint: Unique, keys: Sequence[pa.Array]
) -> pa.Table | None:
    """Return the rows, each once, of a table under `keys`, columns without NULL; they are locked.

    None if the key index does not exist or does not know the time.
    """
    index = await _index(context, table, constraint)
    if index is None:
        return None
    hashes = index.layout.hashes(keys).tolist()
    locks = frozenset(KeyLock(table, constraint.name, hash) for hash in hashes)

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
    locks: frozenset[KeyLock],
    find: Callable[[Timestamp], Found],
    *,
    nowait: bool = False,
) -> pa.RecordBatch | None:
    """Return the rows found after their keys have been locked; see `locked_by_key`."""
    coordinator, transaction, table = context.coordinator, context.transaction, index.table
    while True:
        if not nowait:
            await coordinator.locks.acquire_keys(locks, transaction, context.lock_timeout_ms)
        elif not coordinator.locks.try_locks((), locks, transaction):
            raise row_not_available(context, table)
        move_forward(context)
        time = read_time(context, (table,), None, by_key=True)
        if not index.readable(time):
            return None
        looked_up, rows = find(time)
        transaction.read |= looked_up
        indexes = coordinator.keys.of(table)
        needed = locks | looked_up
        if len(indexes) > 1:
            needed = needed.union(*(locks_of_rows(each, rows) for each in indexes.values()))
        if needed == locks:
            return rows
        locks = needed


def row_not_available(context: StatementContext, table: GlobalId) -> LockNotAvailable:
    """Return the error of NOWAIT for a row that is locked."""
    name = context.planner.state.item(table).name
    return LockNotAvailable(f'could not obtain lock on row in relation "{name}"')


def locks_of_rows(index: KeyIndex, rows: pa.RecordBatch) -> frozenset[KeyLock]:
    """Return the locks of the keys of rows."""
    name = index.constraint.name
    hashes = index.layout.key_hashes(rows).tolist()
    return frozenset(KeyLock(index.table, name, hash) for hash in hashes)


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


def _locks_of(index: KeyIndex, keys: LiteralKeys) -> frozenset[KeyLock]:
    name = index.constraint.name
    hashes = index.layout.hashes(_columns(keys)).tolist() if keys else ()
    return frozenset(KeyLock(index.table, name, hash) for hash in hashes)


def _columns(keys: LiteralKeys) -> list[pa.Array]:
    return [
        to_array([each.value for each in part], part[0].type) for part in zip(*keys, strict=True)
    ]
