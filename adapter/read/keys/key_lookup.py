"""Rows by the keys that a statement names, as columns: from key indexes, and indexes of a cluster.

The rows are those at the transaction's time with its own writes; AS OF another time without them. A
statement that changes rows locks their keys first: the keys of the rows as they are when it has the
locks, under all unique constraints of the table.

Keys are those of a unique constraint, or values of other columns, under which there may be many
rows: the first columns of a constraint, or the columns of an index. Few keys are looked up on the
event loop and locked one by one. Many are looked up on a thread, and count as a read of the table.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.plans.access_path import IndexLookups, KeyLookup, PeekPlan
from foreshore.adapter.read.bound.bind import (
    BoundPeek,
    Given,
    bind_peek,
    counted_each,
    with_arrays_given,
)
from foreshore.adapter.read.bound.cluster_choice import asked_of_cluster
from foreshore.adapter.read.bound.in_process import grows_long_values, rows_in_process
from foreshore.adapter.read.bound.small import small_over, stored_rows
from foreshore.adapter.read.bound.timestamp import move_forward, note_tables_read, read_time
from foreshore.adapter.read.keys.key_ranges import rows_in_range
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.pinned_replica import pinned_replica
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.result import all_rows
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.compute.arrange.key import Words
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.keys.bound_keys import (
    KeyColumns,
    are_too_many,
    is_large,
    key_columns,
)
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_sets import Keys, covers, joined, keys_of
from foreshore.compute.keys.layout import (
    MANY,
    KeyName,
    SecondaryName,
    has_all_rows,
)
from foreshore.compute.keys.look_up import LookUp
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.local.linear import can_evaluate_locally, evaluated
from foreshore.constraint import Unique
from foreshore.datum import from_array
from foreshore.errors import LockNotAvailable, TableAltered
from foreshore.expr.block import Block
from foreshore.expr.ir import Finishing, Get, Literal
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.sql.optimize.key_steps import SMALL, KeyStep, RangeStep, Step, WholeStep
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.types import SqlType
from foreshore.update import Timestamp

R = TypeVar("R")
Located: TypeAlias = tuple[Keys, Keys, R]  # keys looked up; all keys of the rows; rows
Found: TypeAlias = tuple[Keys, pa.RecordBatch]  # the keys looked up; rows

SCANNED_SHARE = 100  # an engine scans this many rows in the time in which one is looked up
PREFIX_ROWS = MANY  # under the first columns of a key, from which on only a range of them is read
SCANNED_ROWS = 10_000  # rows that are looked up whatever the size of the table or index


async def can_look_up(context: StatementContext, lookup: KeyLookup, time: Timestamp | None) -> bool:
    """Whether key indexes know the rows at `time`; None is the newest time."""
    for step in lookup.steps:
        index = await _index(context, step)
        if index is None:
            if not isinstance(step, WholeStep) or not _is_stored(context, step.table, time):
                return False
        elif time is not None and not index.readable(time):
            return False
    return True


def _is_stored(context: StatementContext, table: GlobalId, time: Timestamp | None) -> bool:
    """Whether storage has all rows of a table at `time`; None is the newest time."""
    transaction = context.transaction
    if table not in context.tables.group or transaction.catalog is not None:
        return False
    is_held = time is None or context.times.holds.since(table) <= time
    return is_held and not transaction.rows(table)


async def look_up(
    context: StatementContext, bound: BoundPeek, path: KeyLookup | IndexLookups
) -> Given | None:
    """Return the rows of each step; None if keys or rows are too many, or a time is not known."""
    given = dict(bound.given)
    for step in path.steps:
        if (
            isinstance(path, IndexLookups)
            and isinstance(step, KeyStep)
            and step.by.index is not None
        ):
            found = await _rows_of_index(context, bound, step, path.gets[step.table], given)
        else:
            found = await _rows_of_table(context, bound, step, given)
        if found is None:
            return None
        given[step.rows] = pa.Table.from_batches([found])
    return given


async def _rows_of_table(
    context: StatementContext, bound: BoundPeek, step: Step, given: Given
) -> pa.RecordBatch | None:
    index = await _index(context, step)
    if index is None and isinstance(step, WholeStep):
        if not _is_stored(context, step.table, bound.time):
            raise TableAltered()
        if bound.own:
            note_tables_read(context, (step.table,))
        return await stored_rows(context, step.table, bound.time)
    if index is None or not index.readable(bound.time):
        return None
    if isinstance(step, WholeStep):
        return _all_rows(context, bound, index)
    if isinstance(step, RangeStep):
        own = own_rows(context.transaction, index) if bound.own else None
        if bound.own:
            note_tables_read(context, (step.table,))
        return await rows_in_range(context, bound, index, step, own, _most(index))
    return await _found_rows(context, bound, index, step, given)


async def _rows_of_index(
    context: StatementContext, bound: BoundPeek, step: KeyStep, get: Get, given: Given
) -> pa.RecordBatch | None:
    """Return the rows under the keys of a step in an index of a cluster."""
    if are_too_many(step.keys, bound.bindings):
        return None
    types = [get.columns[i].type for i in step.columns]
    keys = await bound_keys(context, bound, step, types, given)
    if len(keys[0]) > MANY:
        return None
    data = [from_array(column, type) for column, type in zip(keys, types, strict=True)]
    literals = tuple([tuple(map(Literal, key, types)) for key in zip(*data, strict=True)])
    everything = Finishing((), SCANNED_ROWS + 1, 0, tuple(range(len(get.columns))))
    replica, index = pinned_replica(context), step.by.index
    request = PeekRequest(bound.time, get, everything, index, literals, replica=replica)
    context.ran(f"Read of index {index}, {len(literals)} keys")
    rows = await all_rows(await asked_of_cluster(context, request))
    return rows if rows.num_rows <= SCANNED_ROWS else None


def _all_rows(
    context: StatementContext, bound: BoundPeek, index: KeyIndex
) -> pa.RecordBatch | None:
    """Return the rows of a small table; None if it is not small any more."""
    own = own_rows(context.transaction, index) if bound.own else None
    source = index.look_up(own)
    if source.rows > 2 * SMALL:
        return None
    if bound.own:
        note_tables_read(context, (index.table,))
    return source.scan(bound.time)


async def _found_rows(
    context: StatementContext, bound: BoundPeek, index: KeyIndex, step: KeyStep, given: Given
) -> pa.RecordBatch | None:
    if are_too_many(step.keys, bound.bindings):
        return None
    while (source := _source(context.transaction, index, step, own=bound.own)) is None:
        await _index(context, step)
    columns = await bound_keys(context, bound, step, source.layout.types, given)
    if step.constraint is None:
        most = _most(index)
        count = await _run(context.engines.executor, columns, partial(_count, source, columns))
        if step.range is not None and count > PREFIX_ROWS:
            own = own_rows(context.transaction, index) if bound.own else None
            if bound.own:
                note_tables_read(context, (step.table,))
            return await rows_in_range(context, bound, index, step.range, own, most)
        if count > most:
            return None
    if bound.own:
        if len(columns[0]) <= MANY:
            hashes = source.layout.hashes(columns)
            context.transaction.read_keys(_keys(index.table, _name(index, step), hashes))
        else:
            note_tables_read(context, (step.table,))
    _, rows = await _run(
        context.engines.executor, columns, partial(source.find, columns, bound.time)
    )
    return rows


def _most(index: KeyIndex) -> int:
    """Return how many rows are read before a scan of the table is cheaper."""
    return max(index.arrangement.rows // SCANNED_SHARE, SCANNED_ROWS)


def _count(source: LookUp, columns: KeyColumns) -> int:
    return source.count(source.layout.hashes(columns))


async def _run(executor: Executor, columns: KeyColumns, work: Callable[[], R]) -> R:
    """Return the result of work about keys, done on a thread if they are many."""
    if len(columns[0]) <= MANY:
        return work()
    return await blocking.run(executor, work)


async def bound_keys(
    context: StatementContext,
    bound: BoundPeek,
    step: KeyStep,
    types: Sequence[SqlType],
    given: Given,
) -> KeyColumns:
    """Return the keys of a step as columns of `types`; `given` are the rows of earlier steps."""
    executor = context.engines.executor
    parts = []
    for relation in step.sources:
        block = Block(bind_relation(relation, bound.bindings))
        if bound.plan.has_arrays:
            block, given = await with_arrays_given(context, block, given)
        over = replace(bound, block=block, given=given, unbound=None)
        rows = await (
            rows_over(context, over)
            if over.block.sources() <= given.keys()
            else rows_in_process(context, over)
        )
        parts.append(split_diffs(rows)[0])
    bind = partial(key_columns, step.keys, types, bound.bindings, parts)
    is_many = any(len(part[0]) > MANY for part in parts) or is_large(step.keys, bound.bindings)
    is_many |= bound.has_long_values
    return await blocking.run(executor, bind) if is_many else bind()


async def locked_by_key(
    context: StatementContext, plan: PeekPlan, given: Given, *, nowait: bool = False
) -> tuple[pa.Table, Finishing] | None:
    """Return the rows, with `__diff`, of a key look-up, whose keys are locked; and the finishing.

    None if the keys are not known before a table is read, if the key index does not exist or does
    not know the time, or if there are too many keys or rows to lock them one by one. Raises
    LockNotAvailable if a key is locked and `nowait`.
    """
    lookup = plan.key
    step = None if lookup is None else lookup.named
    if lookup is None or step is None or (index := await _index(context, step)) is None:
        return None
    bound = await bind_peek(context, plan, context.times.oracle.read_ts(), given)
    source = _source(context.transaction, index, step, own=True)
    if source is None or are_too_many(step.keys, bound.bindings):
        return None
    columns = await bound_keys(context, bound, step, source.layout.types, given)
    if len(columns[0]) > MANY:
        return None
    # Inserted rows are not locked. After a conflict with one the table is.
    locks_table = context.again and not context.transaction.block
    if step.constraint is None and (locks_table or _count(source, columns) > MANY):
        return None
    locks = _keys(index.table, _name(index, step), source.layout.hashes(columns))

    def find(time: Timestamp) -> Found | None:
        source = _source(context.transaction, index, step, own=True)
        return None if source is None else (locks, source.find(columns, time)[1])

    whole = step.constraint is not None
    rows = await _locked(context, index, locks, find, nowait=nowait, whole=whole)
    if rows is None:
        return None
    assert context.transaction.time is not None
    found = {**given, step.table: pa.Table.from_batches([rows])}
    bound = await bind_peek(context, plan, context.transaction.time, found)
    return await rows_over(context, bound), bound.finishing


def is_local(bound: BoundPeek) -> bool:
    """Whether kernels compute the rows of `bound` over those given to it, in little time."""
    relation = bound.block.relation
    return can_evaluate_locally(relation) and not grows_long_values([relation], bound.given)


async def rows_over(context: StatementContext, bound: BoundPeek) -> pa.Table:
    """Return the rows of `bound`, with `__diff`, over the rows given to it, which are all."""
    if is_local(bound):
        return await evaluated(
            context.engines.executor,
            bound.block.relation,
            counted_each(bound.given),
            is_large=any(each.num_rows > MANY for each in bound.given.values()),
        )
    small = await small_over(context, bound)
    return await rows_in_process(context, bound) if small is None else small


async def locked_rows(
    context: StatementContext, table: GlobalId, constraint: Unique, keys: Sequence[pa.Array]
) -> pa.Table | None:
    """Return the rows, each once, of a table under `keys`, columns without NULL; they are locked.

    None if the key index does not exist or does not know the time.
    """
    await context.tables.keys.ready(table)
    index = context.tables.keys.named(table, constraint)
    if index is None:
        return None
    locks = _keys(table, constraint.name, index.layout.hashes(keys))

    def find(time: Timestamp) -> Found:
        written = context.transaction.rows(table)
        _, found = index.find(keys, time, written.by_key(index.layout))
        hashes = index.layout.hashes_of_rows(found)
        _, firsts = np.unique(hashes, return_index=True)  # `keys` may repeat a key
        return locks, found.take(pa.array(firsts))

    rows = await _locked(context, index, locks, find)
    return None if rows is None else pa.Table.from_batches([rows])


async def locked_under(
    context: StatementContext,
    table: GlobalId,
    columns: tuple[int, ...],
    keys: Sequence[pa.Array],
) -> pa.Table | None:
    """Return the rows of a table whose `columns`, which need be no key, have one of `keys`.

    They are locked if they are few; otherwise the commit checks that the table has not changed.
    None if no index has all rows of the table, or if it does not know the time.
    """
    tables, transaction = context.tables, context.transaction
    await tables.keys.ready(table)
    planned = context.names.catalog.planned.get(table)
    if planned is None or (transaction.catalog is not None and transaction.catalog.changed):
        return None
    indexes = tables.keys.of(table).values()
    index = next((i for i in indexes if has_all_rows(i.constraint, planned.desc)), None)
    if index is None:
        return None
    found: LookUp | None = None
    while found is None:
        await index.prepare(columns, own_rows(context.transaction, index), tables.keys.executor)
        found = index.look_up_by(columns, own_rows(context.transaction, index))
    hashes = found.layout.hashes(keys)
    is_few = len(keys[0]) <= MANY and found.count(hashes) <= MANY
    if is_few and not (context.again and not transaction.block):
        locks = _keys(table, SecondaryName(index.constraint.name, columns), hashes)

        def find(time: Timestamp) -> Found | None:
            source = index.look_up_by(columns, own_rows(context.transaction, index))
            return None if source is None else (locks, source.find(keys, time)[1])

        rows = await _locked(context, index, locks, find, whole=False)
        return None if rows is None else pa.Table.from_batches([rows])
    time = read_time(context, (table,), None)
    source = index.look_up_by(columns, own_rows(context.transaction, index))
    if source is None or not index.readable(time):
        return None
    _, rows = await blocking.run(context.engines.executor, source.find, keys, time)
    return pa.Table.from_batches([rows])


async def _locked(
    context: StatementContext,
    index: KeyIndex,
    locks: Keys,
    find: Callable[[Timestamp], Found | None],
    *,
    nowait: bool = False,
    whole: bool = True,
) -> pa.RecordBatch | None:
    """Return the rows found after their keys have been locked; see `locked_by_key`.

    `whole`: they are found by a whole key, so they need no other lock if the table has no other.
    """

    def find_all(time: Timestamp) -> Located[pa.RecordBatch] | None:
        found = find(time) if index.readable(time) else None
        if found is None:
            return None
        read, rows = found
        indexes = context.tables.keys.of(index.table).values()
        others = [locks_of_rows(each, rows) for each in indexes if len(indexes) > 1 or not whole]
        return read, joined(read, *others) if others else read, rows

    return await lock_and_find(context, (index.table,), locks, find_all, nowait=nowait)


async def lock_and_find(
    context: StatementContext,
    tables: Sequence[GlobalId],
    wanted: Keys,
    find: Callable[[Timestamp], Located[R] | None],
    *,
    nowait: bool = False,
    at_once: bool = False,
) -> R | None:
    """Return the rows that `find` returns at the newest time, after their keys have been locked.

    `tables` are read. The keys `wanted` are locked first. If the rows have other keys, these are
    locked too, and the rows are read again. Return None if `find` does: it does not know the time.
    """
    locks, transaction = context.tables.locks, context.transaction
    while True:
        if nowait:
            if not locks.try_locks((), wanted, transaction):
                raise row_not_available(context.planner, min(wanted)[0])
        elif not locks.try_keys(wanted, transaction):
            await locks.acquire_keys(wanted, transaction, context.lock_timeout_ms)
        move_forward(context)
        found = find(read_time(context, tables, None, by_key=True, at_once=at_once))
        if found is None:
            return None
        read, needed, rows = found
        transaction.read_keys(read)
        if needed is read or covers(wanted, needed):
            return rows
        wanted = joined(wanted, needed)


def row_not_available(planner: Planner, table: GlobalId) -> LockNotAvailable:
    """Return the error of NOWAIT for a row that is locked."""
    name = planner.state.item(table).name
    return LockNotAvailable(f'could not obtain lock on row in relation "{name}"')


def locks_of_rows(index: KeyIndex, rows: pa.RecordBatch) -> Keys:
    """Return the locks of the keys of rows."""
    hashes = index.layout.key_hashes(rows)
    return _keys(index.table, index.constraint.name, hashes)


async def _index(context: StatementContext, step: Step) -> KeyIndex | None:
    """Return the key index for a step, prepared for its columns; None if there is none."""
    tables, transaction = context.tables, context.transaction
    await tables.keys.ready(step.table)
    if isinstance(step, KeyStep) and step.constraint is not None:
        return tables.keys.named(step.table, step.constraint)
    planned = context.names.catalog.planned.get(step.table)
    if planned is None or transaction.catalog is not None:
        return None
    for index in tables.keys.of(step.table).values():
        if has_all_rows(index.constraint, planned.desc):
            if isinstance(step, KeyStep):
                own = own_rows(context.transaction, index)
                await index.prepare(step.columns, own, tables.keys.executor)
            return index
    return None


def own_rows(transaction: Transaction, index: KeyIndex) -> OwnRows | None:
    """Return what the transaction has written to the table of an index."""
    written = transaction.staged.rows.get(index.layout.table)
    return None if written is None else written.by_key(index.layout)


def _source(
    transaction: Transaction, index: KeyIndex, step: KeyStep, *, own: bool
) -> LookUp | None:
    """Return what looks up the rows; None if the index has to be prepared."""
    written = own_rows(transaction, index) if own else None
    if step.constraint is not None:
        return index.look_up(written)
    return index.look_up_by(step.columns, written)


def _name(index: KeyIndex, step: KeyStep) -> KeyName:
    """Return the name under which the keys of a step are locked."""
    constraint = index.constraint.name
    return constraint if step.constraint is not None else SecondaryName(constraint, step.columns)


def _keys(table: GlobalId, name: KeyName, hashes: Words) -> Keys:
    return keys_of(table, name, hashes.tolist())
