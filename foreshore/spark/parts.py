"""Parts of a collection that tasks read apart, each exactly once and in bounded memory.

The rows as of a time are what updates in several files add up to, so updates of the same row must
meet. Batches are sorted by the row, which makes ranges of the first column cheap: a part is a range
of it, over the row groups of all files that may hold such rows. NULLs belong to the first part.
Columns whose order differs between Parquet and Arrow are not used; then one task reads all.

A part gives rows as often as they are there (`Contents`), or changes (`Changes`).
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.errors import DataCorrupted
from foreshore.spark.conditions import Condition, may_hold
from foreshore.spark.lease import touch
from foreshore.spark.opened import Collection
from foreshore.storage.consolidate import consolidate
from foreshore.storage.trace import Batch
from foreshore.update import Timestamp

ROWS_OF_A_PART = 1 << 20
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Contents:
    """The rows as of a time, each as often as it is there."""

    as_of: Timestamp


@dataclass(frozen=True, slots=True)
class Changes:
    """The updates at times from `lower` on and before `upper`, with time and diff."""

    lower: Timestamp
    upper: Timestamp


Wanted = Contents | Changes


@dataclass(frozen=True, slots=True)
class Groups:
    """Row groups of a batch."""

    batch: Batch
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A range of the rows, from `low` on and before `high`; None: from the first, to the last."""

    collection: Collection  # without tail if no row of it is in the range
    wanted: Wanted
    columns: tuple[int, ...]
    conditions: tuple[Condition, ...]
    files: tuple[Groups, ...]
    low: Any = None
    high: Any = None


def parts(
    collection: Collection,
    wanted: Wanted,
    columns: Sequence[int],
    conditions: Sequence[Condition],
    most: int,
    cache: Path,
) -> list[Part]:
    """Return at most `most` parts, of what the statistics of the batches do not rule out."""
    found: list[Groups] = []
    edges: list[tuple[Any, int]] = []  # the least first value of row groups, and their rows
    splits = _splits(collection.schema)
    files = collection.place.files(cache)
    for batch in collection.batches:
        if not _meets(batch, wanted):
            continue
        with files.of([batch]) as (path,), pq.ParquetFile(path) as file:
            groups = [i for i in range(file.num_row_groups) if may_hold(file, i, conditions)]
            found.append(Groups(batch, tuple(groups)))
            for i in groups if splits else ():
                group = file.metadata.row_group(i)
                statistics = group.column(0).statistics
                if statistics is None or not statistics.has_min_max:
                    splits = group.num_rows == statistics.null_count if statistics else False
                else:
                    edges.append((statistics.min, group.num_rows))
    rows = sum(weight for _, weight in edges)
    count = min(most, -(-rows // ROWS_OF_A_PART)) if splits else 1
    bounds = [None, *_bounds(edges, count), None]
    kept = tuple(groups for groups in found if groups.groups)
    return [
        Part(collection, wanted, tuple(columns), tuple(conditions), kept, low, high)
        for low, high in pairwise(bounds)
    ]


def _bounds(edges: list[tuple[Any, int]], count: int) -> list[Any]:
    """Return values that cut the row groups into `count` ranges of about as many rows."""
    if count <= 1:
        return []
    edges.sort(key=lambda edge: edge[0])
    total = sum(rows for _, rows in edges)
    bounds: list[Any] = []
    before = 0
    for value, rows in edges:
        if before >= total * (len(bounds) + 1) / count and bounds[-1:] != [value]:
            bounds.append(value)
        before += rows
    return bounds


def _splits(schema: pa.Schema) -> bool:
    """Whether ranges of the first column can be told by statistics."""
    if len(schema) <= 2:
        return False
    first = schema.types[0]
    return bool(pa.types.is_integer(first) or pa.types.is_string(first))


def _meets(batch: Batch, wanted: Wanted) -> bool:
    match wanted:
        case Contents(as_of):
            return batch.lower <= as_of
        case Changes(lower, upper):
            return batch.upper > lower and batch.lower < upper


def read(part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the rows or changes of a part; blocks.

    Raises DataCorrupted if a file is gone or not as it was written.
    """
    schema = part.collection.schema
    selected = pa.schema([*(schema.field(i) for i in part.columns), *list(schema)[-2:]])
    match part.wanted:
        case Contents(as_of):
            since = as_of
        case Changes(lower, upper):  # from the beginning on: rows as of the end
            since = lower or upper - 1
    touch(part.collection.lease)
    with tempfile.TemporaryDirectory() as scratch:
        updates = _updates(part, selected, Path(scratch))
        for batch in consolidate(updates, selected, since, Path(scratch)):
            touch(part.collection.lease)
            if isinstance(part.wanted, Changes):
                yield batch
            else:
                yield from _repeated(batch)


def _repeated(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows as often as their diffs say, in pieces."""
    diffs = batch.column(batch.num_columns - 1).to_numpy()
    if diffs.size and diffs.min() < 0:
        raise DataCorrupted(f"a row is there {diffs.min()} times")
    rows = batch.select(list(range(batch.num_columns - 2)))
    if diffs.size == 0 or diffs.max() == 1:
        yield rows
        return
    ends = np.cumsum(diffs)
    for start in range(0, int(ends[-1]), ROWS_AT_ONCE):
        places = np.arange(start, min(start + ROWS_AT_ONCE, int(ends[-1])))
        taken = pa.array(np.searchsorted(ends, places, side="right"))
        if rows.num_columns:
            yield rows.take(taken)
        else:
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(taken), pa.struct([])))


def _updates(part: Part, selected: pa.Schema, scratch: Path) -> Iterator[pa.RecordBatch]:
    """Yield the selected updates of a part, from batches and from the end of the log."""
    schema = part.collection.schema
    width = len(schema) - 2
    bounded = part.low is not None or part.high is not None
    used = {*part.columns, *(each.column for each in part.conditions), *((0,) if bounded else ())}
    places = [*sorted(used), width, width + 1]
    files = part.collection.place.files(scratch / "cache")
    for groups in part.files:
        with (
            files.of([groups.batch]) as (path,),
            pq.ParquetFile(path, page_checksum_verification=True) as file,
        ):
            if file.schema_arrow.types != schema.types:
                raise DataCorrupted(f'batch "{groups.batch.key}" has other columns')
            wanted = [i for i in groups.groups if _in_range(file, i, part.low, part.high)]
            names = [schema.names[i] for i in places]
            for piece in file.iter_batches(ROWS_AT_ONCE, wanted, names, use_threads=False):
                touch(part.collection.lease)
                found = {i: piece.column(schema.names[i]) for i in places}
                yield _selected(part, found, selected)
    tail = pa.ipc.open_stream(part.collection.tail)
    for piece in tail:
        yield _selected(part, dict(enumerate(piece.columns)), selected)


def _in_range(file: pq.ParquetFile, group: int, low: Any, high: Any) -> bool:
    statistics = file.metadata.row_group(group).column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    if low is None and statistics.null_count:
        return True
    return (low is None or statistics.max >= low) and (high is None or statistics.min < high)


def _selected(part: Part, columns: dict[int, pa.Array], selected: pa.Schema) -> pa.RecordBatch:
    """Return those of some updates that belong to the part, with its columns."""
    schema = part.collection.schema
    width = len(schema) - 2
    times = columns[width]
    match part.wanted:
        case Contents(as_of):
            mask = pc.less_equal(times, as_of)
        case Changes(lower, upper):
            mask = pc.and_(pc.greater_equal(times, lower), pc.less(times, upper))
    for condition in part.conditions:
        mask = pc.and_(mask, condition.holds(columns[condition.column]))
    if part.low is not None or part.high is not None:
        first = columns[0]
        inside = pa.scalar(True)
        if part.low is not None:
            low = pa.scalar(part.low, schema.types[0])
            inside = pc.fill_null(pc.greater_equal(first, low), False)
        if part.high is not None:
            high = pa.scalar(part.high, schema.types[0])
            below = pc.fill_null(pc.less(first, high), part.low is None)
            inside = pc.and_(inside, below)
        mask = pc.and_(mask, inside)
    arrays = [columns[i] for i in (*part.columns, width, width + 1)]
    return pa.RecordBatch.from_arrays(arrays, schema=selected).filter(mask)
