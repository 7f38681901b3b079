"""Rows of the sources of row reads, at the transaction's time and with its own writes."""

from collections.abc import Iterable, Sequence

from foreshore.adapter.introspection.keyed_rows import keyed_rows
from foreshore.adapter.introspection.relations import builtin_tables
from foreshore.adapter.plans.row_read import RowRead
from foreshore.adapter.plans.row_sources import (
    CatalogRows,
    IndexedTable,
    IndexedView,
    KeyedTable,
    RangedTable,
    RowsSource,
    TableSource,
    find_rows,
)
from foreshore.adapter.read.keys.key_lookup import own_rows
from foreshore.adapter.read.keys.mirrored import may_use_mirrors, mirrors_at, rows_in_mirror
from foreshore.adapter.read.timestamp import note_tables_read, read_time, require
from foreshore.adapter.statement.context import StatementContext
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.update import Timestamp


async def rows_by_keys(context: StatementContext, read: RowRead) -> list[Row] | None:
    """Return the finished rows, of the transaction's time and with its own writes."""
    indexes: dict[GlobalId, KeyIndex] = {}
    views = [each for each in read.sources if isinstance(each, IndexedView)]
    for each in read.sources:
        if isinstance(each, TableSource):
            index = await index_of(context, each)
            if index is None:
                return None
            indexes[each.id] = index
    if views and not may_use_mirrors(context, views):
        return None
    time: Timestamp = 0
    if relations := [each.id for each in read.sources if isinstance(each, CatalogRows)]:
        await builtin_tables(context, relations)
        if context.transaction.time is not None:
            require(context, (), context.transaction.time)
    elif read.sources:
        ids = (*indexes, *(each.index for each in views))
        time = read_time(context, ids, None, by_key=True, at_once=True)
    mirrors = await mirrors_at(context, views, time)
    if mirrors is None:
        return None

    def find(source: RowsSource, keys: Sequence[Row], most: int | None) -> Iterable[Row] | None:
        if isinstance(source, IndexedView):
            return rows_in_mirror(mirrors[source.index], keys, time)
        if isinstance(source, CatalogRows):
            return rows_of_catalog(context, source, keys)
        index = indexes[source.id]
        if isinstance(source, KeyedTable):
            hashes = [index.layout.hash(key) for key in keys]
            context.transaction.read_keys({source.lock: {*hashes}})
            return rows_under(index, keys, hashes, time, own_rows(context, index))
        if not index.readable(time):
            return None
        if isinstance(source, IndexedTable):
            hash = index.layout.by(source.columns).hash
            context.transaction.read_keys({source.lock: {hash(key) for key in keys}})
        else:
            note_tables_read(context, (source.id,))
        return find_rows(source, index, keys, time, own_rows(context, index), most)

    rows = read.rows(context.args, context.session_value(time), find)
    if rows is not None:
        for view in views:
            context.coordinator.compute.mirrors.note_use(mirrors[view.index])
            context.ran(f"Read of index {view.index}, in this process")
    return rows


def rows_of_catalog(
    context: StatementContext, source: CatalogRows, keys: Sequence[Row]
) -> list[Row] | None:
    """Return the rows of a relation of the catalog under keys; None if they are not at hand."""
    found = keyed_rows(context, source.id)
    if found is None:
        return None
    return [row for key in keys for row in found.under(source.columns, source.used, key)]


async def index_of(context: StatementContext, source: TableSource) -> KeyIndex | None:
    """Return the index of a source, prepared; None if the table is not as it was planned."""
    coordinator = context.coordinator
    if context.transaction.catalog is not None:
        return None
    await coordinator.keys.ready(source.id)
    if coordinator.catalog.planned.get(source.id) is not source.planned:
        return None
    found = coordinator.keys.of(source.id)
    if found.keys() != source.names:
        return None
    index = found[source.constraint.name]
    match source:
        case IndexedTable(columns=columns):
            await index.prepare(columns, own_rows(context, index), coordinator.keys.executor)
        case RangedTable(columns=columns):
            await index.prepare_order(columns, coordinator.executor)
        case _:
            return index
    return index if coordinator.keys.of(source.id) is found else None


def rows_under(
    index: KeyIndex,
    keys: Sequence[Row],
    hashes: Sequence[int],
    time: Timestamp,
    written: OwnRows | None,
) -> list[Row] | None:
    """Return the rows under keys at `time`, with what the transaction has `written`.

    None if one has changed since, or the transaction has written rows that are no tuples.
    """
    own = written.newest if written else {}
    if own is None or not index.readable(time):
        return None
    rows = []
    for key, hash in zip(keys, hashes, strict=True):
        if key in own:
            row = own[key]
        else:
            entry = index.newest.newest(hash, key)
            if entry.time > time:
                return None
            row = entry.row
        if row is not None:
            rows.append(row)
    return rows
