"""Finishing: order, limit, offset and projection of result rows, on Arrow columns.

The order is SQL's. A column whose Arrow order differs is replaced by ranks. The sort is stable.

Results have multiplicities. Rows are repeated only as far as needed and within the size limit of an
answer: a cross join without columns may be one row with multiplicity a billion.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.engine import ALL_ROWS, Extent, check_memory, check_size
from foreshore.compute.result import KEPT_BYTES, one_batch, sized
from foreshore.errors import InternalError
from foreshore.expr.columns import type_of
from foreshore.expr.equality import is_plain, python_keys
from foreshore.expr.ir import Column, Finishing, OrderKey
from foreshore.query_memory import Reservation
from foreshore.table_rows import Row, columns_of_rows
from foreshore.types import ColumnType, SqlType

MAX_RESULT_BYTES = 1 << 30
MOST_WANTED = 2**31  # rows, from which on a LIMIT is none for an engine
ORDERED_AT_ONCE = 1 << 18  # rows from which the first ones in order are chosen

# Types whose Arrow order is SQL's (text by bytes, as in collation C).


def expanded(
    result: pa.Table, finishing: Finishing | None = None, memory: int | None = None
) -> pa.RecordBatch:
    """Return each row of `result` as often as its last column, the multiplicity, says.

    Returns no more copies than `finishing` needs. Raises OutOfMemory if the rows would exceed
    MAX_RESULT_BYTES, or the `memory` of the query.
    """
    whole = result.combine_chunks()
    last = whole.num_columns - 1
    diffs = _one(whole.column(last)).to_numpy(zero_copy_only=False)
    if last and not np.count_nonzero(diffs != 1) and _is_small(whole):
        return one_batch(whole.remove_column(last))
    if len(diffs) and diffs.min() < 0:
        raise InternalError("negative multiplicity in a result")
    if finishing is not None and finishing.limit is not None:
        diffs = np.minimum(diffs, finishing.offset + finishing.limit)
    columns = [_one(column) for column in whole.columns[:last]]
    size = sum(_weight(column, diffs) for column in columns)
    check_memory(size, memory)
    check_size(size, MAX_RESULT_BYTES)
    if not columns:
        return empty_rows(int(diffs.sum()))
    fields = [field for field in result.schema][:-1]
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    if (diffs != 1).any():
        rows = rows.take(pa.array(np.repeat(np.arange(len(diffs)), diffs)))
    return rows


def empty_rows(count: int) -> pa.RecordBatch:
    """Return rows without columns."""
    return pa.RecordBatch.from_struct_array(
        pa.StructArray.from_buffers(pa.struct([]), count, [None])
    )


def batch_of_rows(rows: Sequence[Row], types: Sequence[ColumnType]) -> pa.RecordBatch:
    """Return tuples, of columns of these types, as a result in the columns c0, c1, ..."""
    if not types:
        return empty_rows(len(rows))
    columns = columns_of_rows(rows, types)
    return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(types))])


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_small(table: pa.Table) -> bool:
    """Whether the columns take less than MAX_RESULT_BYTES, even if they share their memory.

    Their own sizes (`nbytes`) take longer to get than a row to send.
    """
    return bool(table.get_total_buffer_size() * table.num_columns <= MAX_RESULT_BYTES)


def _weight(column: pa.Array, counts: Any) -> int:
    """Return the bytes that `column` takes with its values repeated."""
    total = float(counts.sum())  # a product of large counts may exceed an integer
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return int(np.dot(lengths.astype(float), counts.astype(float)) + 4 * total)
    return int(column.nbytes / len(column) * total) if len(column) else 0


def finish(rows: pa.RecordBatch, finishing: Finishing) -> pa.RecordBatch:
    """Return the remaining rows, in order, with the requested columns."""
    start = finishing.offset
    stop = rows.num_rows if finishing.limit is None else start + finishing.limit
    if finishing.order_by and rows.num_rows > 1:
        rows = rows.take(pa.array(places_in_order(rows, finishing.order_by)[start:stop]))
    elif start or stop < rows.num_rows:
        rows = rows.slice(start, max(stop - start, 0))
    if finishing.project == tuple(range(rows.num_columns)):
        return rows
    columns = [rows.column(i) for i in finishing.project]
    fields = [rows.schema.field(i).with_name(f"c{n}") for n, i in enumerate(finishing.project)]
    if not columns:
        return empty_rows(rows.num_rows)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def finished_parts(
    parts: Iterable[pa.Table], finishing: Finishing | None, memory: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the finished rows of a result with multiplicities, part by part.

    At least one part is yielded, possibly empty. Rows to be ordered are collected first, with LIMIT
    only those that may be among the first. Raises OutOfMemory if the rows would exceed
    MAX_RESULT_BYTES, or what is collected the `memory` of the query.
    """
    if finishing is not None and not finishing.order_by:
        return sized(_finished_as_they_come(parts, finishing, memory))
    return sized(_finished_together(parts, finishing, memory))


def streamed_parts(parts: Iterable[pa.Table], finishing: Finishing) -> Iterator[pa.RecordBatch]:
    """Yield the finished rows of a result of any size without order, part by part: at least one."""
    assert not finishing.order_by, finishing
    return _finished_as_they_come(parts, finishing, None, None)


def split_finishing(finishing: Finishing) -> tuple[Extent, Finishing]:
    """Return which rows to ask an engine for, and what is left to be done with those.

    They are in order then, and with LIMIT the first ones.
    """
    keys = finishing.order_by
    if not all(isinstance(key.expr, Column) for key in keys):
        return ALL_ROWS, finishing
    most = None
    if finishing.limit is not None and finishing.limit + finishing.offset <= MOST_WANTED:
        most = finishing.limit + finishing.offset
    return Extent(keys, most), msgspec.structs.replace(finishing, order_by=())


def _is_ordered(type: SqlType) -> bool:
    """Whether Arrow orders columns of the type as SQL does."""
    return is_plain(type) or type.name == "numeric"


def in_order(rows: pa.Table, keys: tuple[OrderKey, ...]) -> pa.Table:
    """Return rows with `__diff` in order."""
    if rows.num_rows < 2:
        return rows
    whole = one_batch(rows)
    return pa.Table.from_batches([whole.take(pa.array(places_in_order(whole, keys)))])


def _finished_together(
    parts: Iterable[pa.Table], finishing: Finishing | None, memory: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the finished rows as one part, for which all of them have to be in memory."""
    with closing(Reservation()) as reserved:
        if finishing is not None and finishing.limit is not None:
            rows = _first_in_order(parts, finishing, memory, reserved)
        else:
            rows = expanded(whole(parts, memory=memory, reserved=reserved), finishing, memory)
        yield rows if finishing is None else finish(rows, finishing)


def whole(
    parts: Iterable[pa.Table],
    max_bytes: int | None = MAX_RESULT_BYTES,
    *,
    memory: int | None = None,
    reserved: Reservation | None = None,
) -> pa.Table:
    """Return at least one part as one table.

    Raises OutOfMemory beyond `max_bytes` or `memory`, or if no more can be `reserved`.
    """
    kept: list[pa.Table] = []
    size = 0
    for part in parts:
        size += part.nbytes
        check_memory(size, memory)
        if max_bytes is not None:
            check_size(size, max_bytes)
        if reserved is not None and size > KEPT_BYTES:
            reserved.reserve(size - reserved.held)
        kept.append(part)
    return pa.concat_tables(kept)


def _first_in_order(
    parts: Iterable[pa.Table], finishing: Finishing, memory: int | None, reserved: Reservation
) -> pa.RecordBatch:
    """Return rows among which are the first ones in order, as many as LIMIT and OFFSET need.

    Whenever there are twice as many rows, all others are dropped. Equal rows stay in their order.
    """
    assert finishing.limit is not None
    wanted = finishing.offset + finishing.limit
    kept: list[pa.RecordBatch] = []
    count = size = 0
    for part in parts:
        rows = expanded(part, finishing, memory)
        kept.append(rows)
        count, size = count + rows.num_rows, size + rows.nbytes
        if count > 2 * wanted + ORDERED_AT_ONCE:
            rows = pa.concat_batches(kept)
            first = places_in_order(rows, finishing.order_by)[:wanted]
            kept = [rows.take(pa.array(first))]
            count, size = wanted, kept[0].nbytes
        check_memory(size, memory)
        check_size(size, MAX_RESULT_BYTES)
        if size > max(KEPT_BYTES, reserved.held):
            reserved.reserve(size - reserved.held)
    return pa.concat_batches(kept)


def _finished_as_they_come(
    parts: Iterable[pa.Table],
    finishing: Finishing,
    memory: int | None,
    max_bytes: int | None = MAX_RESULT_BYTES,
) -> Iterator[pa.RecordBatch]:
    size = 0
    skip, limit = finishing.offset, finishing.limit
    for part in parts:
        rest = Finishing((), limit, skip, finishing.project)
        rows = expanded(part, rest, memory)
        finished = finish(rows, rest)
        if max_bytes is not None:
            size += finished.nbytes
            check_size(size, max_bytes)
        yield finished
        skip = max(skip - rows.num_rows, 0)
        if limit is not None:
            limit -= finished.num_rows
            if limit == 0:
                return


def places_in_order(rows: pa.RecordBatch, keys: tuple[OrderKey, ...]) -> Any:
    """Return the positions of the rows in order."""
    return np.lexsort([_ranks(rows, key) for key in reversed(keys)])


def _ranks(rows: pa.RecordBatch, key: OrderKey) -> Any:
    """Return integers with the same order as the key gives its values."""
    if isinstance(key.expr, Column):
        column = rows.column(key.expr.index)
    else:
        from foreshore.expr.evaluate import evaluate

        column = evaluate(key.expr, rows.columns, rows.num_rows)
    type = type_of(key.expr)
    if type.name in ("float4", "float8"):
        ranks = _float_ranks(column)
    elif _is_ordered(type):
        ranks = pc.rank(column, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    else:
        values = python_keys(column, type)
        ordered = sorted({value for value in values if value is not None})
        places = {value: place for place, value in enumerate(ordered, 1)}
        ranks = np.array([0 if v is None else places[v] for v in values], np.int64)
    if key.descending:
        ranks = -ranks
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        outermost = np.iinfo(np.int64)
        ranks = np.where(null, outermost.min if key.nulls_first else outermost.max, ranks)
    return ranks


def _float_ranks(column: pa.Array) -> Any:
    """Return ranks of floats: NaN is greatest, -0.0 equals 0.0."""
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    bits = values.view(np.int64)
    ranks = np.where(bits < 0, ~bits + np.iinfo(np.int64).min + 1, bits)
    return np.where(np.isnan(values), np.iinfo(np.int64).max - 1, ranks)
