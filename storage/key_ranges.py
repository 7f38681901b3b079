"""A merge in parts: ranges of rows that several processes merge, each for itself.

    ranges_of      ranges of rows, and where in each batch's file their rows are
    merge_range    the consolidated updates of one range

The ranges one after the other give what `consolidate.merge` gives of all of it. Files of batches
are sorted, so the rows of a range are in some neighbouring row groups of each file.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.storage.consolidate import Key, exact_batch, exact_schema, key_of_row, merge
from foreshore.update import Timestamp

PIECE_ROWS = 1 << 14  # of a file, in memory at once


@dataclass(frozen=True, slots=True)
class FileRange:
    """Row groups of a file, from `start` on and before `stop`."""

    path: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows from `low` on and before `high` (None: without an end), and where they may be."""

    low: Key | None
    high: Key | None
    files: tuple[FileRange, ...]


def ranges_of(paths: Sequence[str], schema: pa.Schema, count: int) -> list[KeyRange]:
    """Return at most `count` ranges of about as many row groups each; reads a row of each group."""
    firsts = [list(_first_rows(path, schema)) for path in paths]
    known = sorted({key for keys in firsts for key in keys})
    step = max(1, -(-len(known) // count))
    ends = known[step::step]
    bounds: list[tuple[Key | None, Key | None]] = list(
        zip([None, *ends], [*ends, None], strict=True)
    )
    return [
        KeyRange(
            low,
            high,
            tuple(
                FileRange(path, start, stop)
                for path, keys in zip(paths, firsts, strict=True)
                # Rows that equal `low` may begin at the end of the group before.
                if (start := 0 if low is None else max(0, bisect_left(keys, low) - 1))
                < (stop := len(keys) if high is None else bisect_left(keys, high))
            ),
        )
        for low, high in bounds
    ]


def merge_range(
    wanted: KeyRange, schema: pa.Schema, since: Timestamp, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Yield the consolidated updates of a range as of `since`, sorted."""
    runs = [_rows_between(file, wanted, schema) for file in wanted.files]
    yield from merge(runs, schema, since, scratch)


def _first_rows(path: str, schema: pa.Schema) -> Iterator[Key]:
    """Yield the first row of each row group."""
    exact = exact_schema(schema)
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups if file.metadata.num_rows else 0):
            first = next(file.iter_batches(1, [group], use_threads=False))
            batch = pa.RecordBatch.from_arrays(first.columns, schema=schema)
            yield key_of_row(exact_batch(batch, exact, 0), 0)


def _rows_between(
    where: FileRange, wanted: KeyRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the updates of a file whose rows are in a range."""
    exact = exact_schema(schema)
    groups = list(range(where.start, where.stop))
    with pq.ParquetFile(where.path, page_checksum_verification=True) as file:
        for found in file.iter_batches(PIECE_ROWS, groups, use_threads=False):
            piece = pa.RecordBatch.from_arrays(found.columns, schema=schema)
            keys = exact_batch(piece, exact, 0)
            places = range(piece.num_rows)

            def key(row: int, keys: pa.RecordBatch = keys) -> Key:
                return key_of_row(keys, row)

            start = 0 if wanted.low is None else bisect_left(places, wanted.low, key=key)
            stop = len(places) if wanted.high is None else bisect_left(places, wanted.high, key=key)
            if start < stop:
                yield piece.slice(start, stop - start)
            if stop < len(places):
                return
