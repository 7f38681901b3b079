"""Rows of the sources of row reads, at the transaction's time and with its own writes."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from foreshore.adapter.calls.side_effects import results_of
from foreshore.adapter.introspection.keyed_rows import keyed_rows
from foreshore.adapter.introspection.relations import load_rows
from foreshore.adapter.plans.catalog_relations import NAMED
from foreshore.adapter.plans.row_read import RowRead, SessionValue
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
from foreshore.adapter.read.bound.timestamp import note_tables_read, read_time, require
from foreshore.adapter.read.keys.key_lookup import own_rows
from foreshore.adapter.read.keys.mirrored import may_use_mirrors, mirrors_at, rows_in_mirror
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.transaction import NOTHING_STAGED
from foreshore.catalog.builtin.parts import RelationRows
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.compute.controller.mirror import Mirror
from foreshore.compute.keys.bound_keys import columns_of_keys
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.rows.program import MOST
from foreshore.compute.rows.scalars import name_of_call
from foreshore.expr.ir import Call
from foreshore.expr.scalars import bind_scalar
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.sql.rewrite.bind_parameters import parameter_bindings
from foreshore.table_rows import Row, TableRows
from foreshore.types import RelationDesc
from foreshore.update import Timestamp


async def rows_by_keys(context: StatementContext, read: RowRead) -> list[Row] | None:
    """Return the finished rows, of the transaction's time and with its own writes."""
    if read.unless is not None:
        chosen = read.chosen(context.args)
        if chosen is None:
            return None
        read = chosen
    needs = read.sources or read.recursions
    reading = await reading_of(context, read, read.tables) if needs else _Reading(context)
    if reading is None:
        return None
    value = context.session_value(reading.time)
    if read.calls:
        value = await _with_results(context, read.calls, value)
    rows = read.rows(context.args, value, reading.find)
    if rows is not None and read.views:
        for view in read.views:
            context.views.compute.mirrors.note_use(reading.mirrors[view.index])
            context.ran(f"Read of index {view.index}, in this process")
    return rows


async def _with_results(
    context: StatementContext, calls: Sequence[Call], value: SessionValue
) -> SessionValue:
    """Make calls; return the function from names to session values and to their results."""
    bindings = parameter_bindings(context.args, value)
    bound = [bind_scalar(call, bindings) for call in calls]
    results = await results_of(context, [each for each in bound if isinstance(each, Call)])
    found = {
        name_of_call(call.number): results[each].value
        for call, each in zip(calls, bound, strict=True)
    }
    return lambda name: found[name] if name in found else value(name)


async def reading_of(
    context: StatementContext,
    read: RowRead,
    tables: Sequence[TableSource],
    time: Timestamp | None = None,
) -> "_Reading | None":
    """Return what finds the rows of a read's sources, at a time; None if it cannot.

    With a `time` those of `tables` are found at it.
    """
    indexes: dict[GlobalId, KeyIndex] = {}
    for each in tables:
        index = await index_of(context, each)
        if index is None:
            return None
        indexes[each.rows] = index
    if time is not None:
        return _Reading(context, time, indexes)
    if read.views and not may_use_mirrors(context, read.views):
        return None
    if read.relations:
        kept = [id for id in read.relations if BUILTINS[id].name not in NAMED]
        relations = await load_rows(context, kept)
        if context.transaction.time is not None:
            require(context, (), context.transaction.time)
        return _Reading(context, relations=relations)
    time = read_time(context, read.timed, None, by_key=True, at_once=True)
    if not read.views:
        return _Reading(context, time, indexes)
    mirrors = await mirrors_at(context, read.views, time)
    return None if mirrors is None else _Reading(context, time, indexes, mirrors)


class _Reading(Struct):
    """Finds rows of sources at a time."""

    context: StatementContext
    time: Timestamp = 0
    indexes: Mapping[GlobalId, KeyIndex] = {}  # of tables, by the names of their rows
    mirrors: Mapping[GlobalId, Mirror] = {}  # by index
    relations: Mapping[GlobalId, RelationRows] = {}  # of the catalog

    def find(
        self, source: RowsSource, keys: Sequence[Row], most: int | None
    ) -> Iterable[Row] | None:
        """Return the rows of a source under keys; None if they are not known at once."""
        context, time = self.context, self.time
        if isinstance(source, IndexedView):
            return rows_in_mirror(self.mirrors[source.index], keys, time)
        if isinstance(source, CatalogRows):
            found = keyed_rows(context, source.id, self.relations.get(source.id))
            return None if found is None else found.under(source.columns, source.used, keys, most)
        transaction, index = context.transaction, self.indexes[source.rows]
        own = None if transaction.staged is NOTHING_STAGED else own_rows(transaction, index)
        if isinstance(source, KeyedTable):
            if source.by_columns:
                if not index.readable(time):
                    return None
                columns = columns_of_keys(keys, index.layout.types)
                transaction.read_keys({source.lock: {*index.layout.hashes(columns).tolist()}})
                return tuples_of(source.planned.desc, batch_under(index, columns, time, own))
            hashes = [index.layout.hash(key) for key in keys]
            # Else nothing follows that could conflict.
            if not context.alone or context.reads_newest:
                transaction.read_keys({source.lock: {*hashes}})
            return rows_under(index, keys, hashes, time, own)
        if not index.readable(time):
            return None
        if isinstance(source, IndexedTable):
            hash = index.layout_by(source.columns).hash
            transaction.read_keys({source.lock: {hash(key) for key in keys}})
        else:
            note_tables_read(context, (source.id,))
        return find_rows(source, index, keys, time, own, most)


async def index_of(context: StatementContext, source: TableSource) -> KeyIndex | None:
    """Return the index of a source, prepared; None if the table is not as it was planned."""
    tables = context.tables
    if context.transaction.staged.catalog is not None:
        return None
    if not tables.keys.is_ready(source.id):
        await tables.keys.ready(source.id)
    if context.names.catalog.planned.get(source.id) is not source.planned:
        return None
    found = tables.keys.of(source.id)
    if found.keys() != source.names:
        return None
    index = found[source.constraint.name]
    match source:
        case IndexedTable(columns=columns):
            await index.prepare(columns, own_rows(context.transaction, index), tables.keys.executor)
        case RangedTable(columns=columns):
            if source.is_whole and index.arrangement.rows > MOST:
                return None  # it has grown
            await index.prepare_order(columns, context.engines.executor)
        case _:
            return index
    return index if tables.keys.of(source.id) is found else None


def batch_under(
    index: KeyIndex, keys: Sequence[pa.Array], time: Timestamp, own: OwnRows | None
) -> pa.RecordBatch:
    """Return the rows at `time`, each once, under keys in columns."""
    _, found = index.find(keys, time, own)
    _, firsts = np.unique(index.layout.hashes_of_rows(found), return_index=True)  # of equal keys
    return found.take(pa.array(np.sort(firsts)))


def tuples_of(desc: RelationDesc, rows: pa.RecordBatch) -> list[Row]:
    """Return the rows of a table as tuples."""
    return [*TableRows.of_table(desc, counted(pa.Table.from_batches([rows]))).tuples]


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
    rows, newest = [], index.newest.newest
    for key, hash in zip(keys, hashes, strict=True):
        if key in own:
            row = own[key]
        else:
            entry = newest(hash, key)
            if entry.time > time:
                return None
            row = entry.row
        if row is not None:
            rows.append(row)
    return rows
