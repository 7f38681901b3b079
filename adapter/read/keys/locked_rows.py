"""Rows under keys, which are locked, as tuples: UPDATE, DELETE and SELECT FOR UPDATE of few rows.

The keys of a `LockedRead` are locked, then the rows are found at the newest time, and at the same
one those of other tables. A program over all of them computes the rows to change or to return.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from foreshore.adapter.plans.locked_read import LockedRead
from foreshore.adapter.plans.row_read import SessionValue, keys_of, no_value
from foreshore.adapter.plans.row_sources import IndexedTable, KeyedTable, find_rows
from foreshore.adapter.read.bound.timestamp import read_time
from foreshore.adapter.read.keys.key_lookup import (
    Located,
    lock_and_find,
    locks_of_rows,
    own_rows,
)
from foreshore.adapter.read.keys.read_rows import (
    batch_under,
    index_of,
    reading_of,
    rows_under,
    tuples_of,
)
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import require_distinct, require_single
from foreshore.compute.keys.bound_keys import KeyColumns, columns_of_keys
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_sets import Keys, joined
from foreshore.compute.keys.layout import MANY
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.rows.program import MOST, TooMany
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.update import Timestamp


async def locked_rows(
    context: StatementContext, plan: LockedRead, *, nowait: bool = False
) -> tuple[list[list[Row]], list[list[Row]]] | None:
    """Return the keys of each execution, and its finished rows, which are locked.

    None if the rows have to be read another way (`key_lookup.py`). Raises Apart if two executions
    name one key, or if only one of several may be read this way. See `lock_and_find`.
    """
    value: SessionValue = no_value
    many = context.many
    if plan.source.keys.session_values:
        value = context.session_value(context.times.oracle.read_ts())
    named: list[list[Row]] = []
    for args in many:
        keys = keys_of(plan.source, args, value)
        if keys is None:
            require_single(context, len(named))
            return None
        named.append(keys)
    if len(many) > 1:
        require_distinct(named)
        keys = [*chain.from_iterable(named)]
    assert keys is not None
    beside = [each.id for each in plan.others] if plan.others else ()
    rows = await rows_under_keys(context, plan.source, keys, nowait=nowait, beside=beside)
    if rows is None:
        require_single(context)
        return None
    time, source = context.transaction.time, plan.source
    assert time is not None
    value, parts = context.session_value(time), [rows]
    if plan.others:
        reading = await reading_of(context.reading_newest(), plan.read, plan.others, time)
        known = {source.rows: rows}
        all_of = None if reading is None else plan.read.rows(args, value, reading.find, known)
        return None if all_of is None else (named, [all_of])
    if len(many) > 1:
        layout = context.tables.keys.of(source.id)[source.constraint.name].layout
        by_key = {layout.key(row): row for row in rows}
        parts = [[by_key[key] for key in keys if key in by_key] for keys in named]
    found: list[list[Row]] = []
    for args, part in zip(many, parts, strict=True):
        finished = plan.read.over(source.rows, part, args, value)
        if finished is None:
            require_single(context, len(found))
            return None
        found.append(finished)
    return named, found


async def rows_under_keys(
    context: StatementContext,
    source: KeyedTable | IndexedTable,
    keys: Sequence[Row],
    *,
    nowait: bool = False,
    beside: Sequence[GlobalId] = (),
) -> list[Row] | None:
    """Return the rows under keys, whole ones, which are locked; None as `locked_rows` does.

    The tables `beside` are to be read at the same time.
    """
    transaction, tables = context.transaction, (source.id, *beside)
    index = await index_of(context, source)
    if index is None or len(keys) > MANY:
        return None
    if not keys:
        read_time(context, tables, None, by_key=True)
        return []
    is_whole = isinstance(source, KeyedTable)
    # Inserted rows are not locked under other columns, nor are rows of other tables. After a
    # conflict with one the tables are.
    if context.again and not transaction.block and (beside or not is_whole):
        return None
    indexes = context.tables.keys.of(source.id)
    written = own_rows(context.transaction, index)
    by_columns: KeyColumns | None = None
    if isinstance(source, KeyedTable) and (
        source.by_columns or (written is not None and written.newest is None)
    ):  # a transaction that has written many rows at once has them as columns
        by_columns = columns_of_keys(keys, index.layout.types)
        hashes = index.layout.hashes(by_columns).tolist()
    else:
        layout = index.layout
        if isinstance(source, IndexedTable):
            layout = layout.by(source.columns)
        hashes = [*map(layout.hash, keys)]
    wanted: Keys = {source.lock: {*hashes}}

    def find(time: Timestamp) -> "Located[list[Row]] | None":
        if by_columns is not None:
            return _located(index, source, indexes, by_columns, wanted, time, written)
        if isinstance(source, KeyedTable):
            found = rows_under(index, keys, hashes, time, written)
        else:
            found = _rows_by(index, source, keys, time, written)
        if found is None:
            return None
        if is_whole and (len(indexes) == 1 or not found):
            return wanted, wanted, found
        return wanted, joined(wanted, locks_of(source.id, indexes, found)), found

    return await lock_and_find(context, tables, wanted, find, nowait=nowait, at_once=True)


def _located(
    index: KeyIndex,
    source: KeyedTable | IndexedTable,
    indexes: Mapping[str, KeyIndex],
    keys: KeyColumns,
    wanted: Keys,
    time: Timestamp,
    own: OwnRows | None,
) -> "Located[list[Row]] | None":
    """Return the rows under keys in columns, and the locks of all keys of the rows."""
    if not index.readable(time):
        return None
    found = batch_under(index, keys, time, own)
    rows = tuples_of(source.planned.desc, found)
    if len(indexes) == 1 or not rows:
        return wanted, wanted, rows
    others = [locks_of_rows(each, found) for each in indexes.values()]
    return wanted, joined(wanted, *others), rows


def _rows_by(
    index: KeyIndex,
    source: IndexedTable,
    keys: Sequence[Row],
    time: Timestamp,
    own: OwnRows | None,
) -> list[Row] | None:
    """Return the rows under values of other columns, if they are at hand and few."""
    if not index.readable(time):
        return None
    try:
        rows = find_rows(source, index, keys, time, own, MOST)
    except TooMany:
        return None
    return None if rows is None else [*rows]


def locks_of(table: GlobalId, indexes: Mapping[str, KeyIndex], rows: Sequence[Row]) -> Keys:
    """Return all keys of rows."""
    return {
        (table, name): {index.layout.hash(key) for row in rows if (key := index.layout.key(row))}
        for name, index in indexes.items()
    }
