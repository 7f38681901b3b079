"""Batches: immutable sets of updates over a known interval of times.

A batch [lower, upper) holds every update of its shard at or beyond `lower` and before `upper`. Each
batch starts where the previous one ends, so together they are the whole history. Consolidation
moves times forward to the batch's `since`. From then on the batch no longer holds the original
updates, but it has the same sum at each time at or beyond `since`.

A batch is a Parquet file: the row's columns, then `__time` and `__diff`, sorted by row in column
order and then by time, with statistics and a checksum for each page. Columns are identified by
position. They keep the user's names, except that a name that occurs twice (ignoring case) or equals
`__time` or `__diff` gets a number appended. The batch's interval and since are in the file's
metadata under `foreshore`. The number of rows and the bytes of each column are there under
`foreshore.sizes`, with repeated rows and values, which the file has once.
"""

import errno
from collections.abc import Iterable, Iterator
from itertools import count
from operator import add
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.errors import DataCorrupted
from foreshore.storage.local_files import LocalFiles, measure
from foreshore.storage.selection import ALL, ROW_GROUP_BYTES, Reading, Selection, read_parts
from foreshore.storage.trace import Batch
from foreshore.update import DIFF, TIME, Timestamp

METADATA = b"foreshore"
SIZES = b"foreshore.sizes"
ROW_GROUP_ROWS = 1 << 17
BLOCK_ROWS = 1 << 13  # that are measured at once
PAGE_BYTES = 128 << 10


class BatchMetadata(msgspec.Struct, frozen=True):
    """The interval, since and shard id in a file's metadata."""

    id: str
    lower: Timestamp
    upper: Timestamp
    since: Timestamp
    version: int = 1


def column_names(schema: pa.Schema) -> list[str]:
    """Return the file's column names for the columns of updates."""
    taken = {TIME, DIFF}
    names: list[str] = []
    for name in schema.names[:-2]:
        unique = name
        for i in count(1):
            if unique.casefold() not in taken:
                break
            unique = f"{name}_{i}"
        taken.add(unique.casefold())
        names.append(unique)
    return [*names, TIME, DIFF]


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Return the file schema for updates with `schema`."""
    names = column_names(schema)
    return pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])


def write_batch(
    files: LocalFiles,
    key: str,
    scratch: Path,
    schema: pa.Schema,
    metadata: BatchMetadata,
    updates: Iterable[pa.RecordBatch],
) -> Batch:
    """Store a batch of sorted and consolidated updates under `key`."""
    form = file_schema(schema).with_metadata({METADATA: msgspec.json.encode(metadata)})
    rows = loose = 0
    sizes = [0] * (1 + len(form))  # rows, then the bytes of each column
    try:
        with pq.ParquetWriter(
            scratch,
            form,
            compression="zstd",
            version="2.6",
            data_page_size=PAGE_BYTES,
            write_page_checksum=True,
        ) as writer:
            for table in _row_groups(updates, schema):
                times = table.column(len(form) - 2).to_numpy()
                assert times.size == 0 or times.min() >= metadata.lower, metadata
                assert times.size == 0 or times.max() < metadata.upper, metadata
                rows += table.num_rows
                loose += int((times > metadata.since).sum())
                sizes = list(map(add, sizes, sizes_of(table)))
                writer.write_table(
                    pa.Table.from_arrays(table.columns, schema=form), row_group_size=ROW_GROUP_ROWS
                )
            writer.add_key_value_metadata({SIZES: msgspec.json.encode(sizes)})
        size, checksum = measure(scratch)
        files.adopt(key, scratch)
    finally:
        scratch.unlink(missing_ok=True)
    return Batch(key, metadata.lower, metadata.upper, metadata.since, rows, loose, size, checksum)


def sizes_of(updates: pa.Table) -> list[int]:
    """Return how many rows updates stand for, and the bytes that each column has in these.

    The bytes of a row that is there n times count as those of the next power of two.
    """
    counts = np.abs(updates.columns[-1].to_numpy())
    powers = np.ceil(np.log2(np.maximum(counts, 1)))
    sizes = [int(counts.sum()), *[0] * updates.num_columns]
    for power in np.unique(powers):
        rows = powers == power
        part = updates if rows.all() else updates.filter(pa.array(rows))
        for i, column in enumerate(part.columns, 1):
            sizes[i] += sum(map(_bytes, column.chunks)) << int(power)
    return sizes


def _row_groups(updates: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of each row group.

    Groups and their chunks depend on the rows only, not on how they come in batches: whoever writes
    the same rows writes the same file.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for block in _blocks(updates, schema):
        for part, bytes in _slices(block, ROW_GROUP_BYTES):
            gathered.append(part)
            rows += part.num_rows
            size += bytes
            if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(gathered, schema)
                gathered, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(gathered, schema)


def _blocks(updates: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, `BLOCK_ROWS` at a time."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in updates:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, BLOCK_ROWS - rows)
            gathered.append(part)
            start += part.num_rows
            rows += part.num_rows
            if rows == BLOCK_ROWS:
                yield _single(gathered, schema)
                gathered, rows = [], 0
    if rows:
        yield _single(gathered, schema)


def _single(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches, schema).combine_chunks().to_batches()[0]


def _slices(batch: pa.RecordBatch, size: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield a batch in slices of at most `size` bytes, or of one row if it is larger.

    Each comes with its bytes.
    """
    bytes = sum(map(_bytes, batch.columns))
    if batch.num_rows <= 1 or bytes <= size:
        yield batch, bytes
    else:
        middle = batch.num_rows // 2
        yield from _slices(batch.slice(0, middle), size)
        yield from _slices(batch.slice(middle), size)


def _bytes(column: pa.Array) -> int:
    """Return the bytes of a column's values, however it lies in memory."""
    type = column.type
    if pa.types.is_string(type) or pa.types.is_binary(type):
        lengths: int = pc.sum(pc.binary_length(column)).as_py() or 0
        return 4 * len(column) + lengths
    if pa.types.is_list(type):
        return 4 * len(column) + _bytes(column.flatten())
    if pa.types.is_struct(type):
        return sum(map(_bytes, column.flatten()))
    return len(column) * int(type.bit_width) // 8


def read_batch(
    files: LocalFiles,
    batch: Batch,
    schema: pa.Schema,
    selection: Selection = ALL,
    after: Timestamp | None = None,
    reading: Reading | None = None,
    *,
    piece_bytes: int = ROW_GROUP_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the updates of a batch under the schema's own names, in pieces of `piece_bytes`.

    Yields only updates of the selection, and only later ones if `after` is given. `reading` counts
    row groups. At most a page of each column is held in memory. Raises DataCorrupted.
    """
    try:
        yield from _read(files, batch, schema, selection, after, reading or Reading(), piece_bytes)
    except OSError as error:  # Arrow sets no errno: a page changed since the check
        if error.errno not in (None, errno.EIO):
            raise
        raise DataCorrupted(f'batch "{batch.key}" is not readable: {error}') from error


def _read(
    files: LocalFiles,
    batch: Batch,
    schema: pa.Schema,
    selection: Selection,
    after: Timestamp | None,
    reading: Reading,
    piece_bytes: int,
) -> Iterator[pa.RecordBatch]:
    with (
        files.of([batch]) as (path,),
        pq.ParquetFile(
            path, buffer_size=PAGE_BYTES, pre_buffer=False, page_checksum_verification=True
        ) as file,
    ):
        found = file.schema_arrow
        if found.types != schema.types or file.metadata.num_rows != batch.rows:
            raise DataCorrupted(
                f'batch "{batch.key}" has {file.metadata.num_rows} rows of {found.types}'
            )
        metadata = msgspec.json.decode(found.metadata[METADATA], type=BatchMetadata)
        if (metadata.lower, metadata.upper, metadata.since) != (
            batch.lower,
            batch.upper,
            batch.since,
        ):
            raise DataCorrupted(f'batch "{batch.key}" has metadata {metadata}')
        yield from read_parts(file, schema, selection, after, reading, piece_bytes)
