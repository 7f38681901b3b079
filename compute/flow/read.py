"""Reading a collection's updates up to a time, as batches."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.compute.flow.batch import Batch, Ints, Words
from foreshore.compute.flow.convert import fill_words, integers
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Layout
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.sorter import BLOCK
from foreshore.types import ColumnType, SqlType, arrow_type
from foreshore.update import DIFF, TIME, Timestamp

AT_ONCE = 1 << 18  # rows


def read_until(
    input: Input,
    columns: Sequence[ColumnType],
    picked: Sequence[int],
    layout: Layout,
    interner: Interner,
    time: Timestamp,
    check: Callable[[int], None] = lambda _: None,
) -> Batch:
    """Return the updates until a time, all of them at that time and not consolidated.

    Their rows have the columns at `picked`, in `layout`. `check` is called with the bytes read so
    far, and may raise.

    If there are NULLs where the layout has none, which cancel out, the updates are consolidated:
    operators can make nothing of the words that stand for them.
    """
    most = count_updates(input)
    words = np.zeros((most, layout.words), np.int64)
    diffs = np.empty(most, np.int64)
    end = 0
    has_nulls = False
    types = [columns[i].type for i in picked]
    for arrays, counts in _blocks(tables_until(input, picked, time), types):
        start, end = end, end + len(counts)
        check(end * 8 * (layout.words + 2))
        fill_words(words[start:end], arrays, layout, interner)
        diffs[start:end] = counts
        has_nulls = has_nulls or any(
            place.bit < 0 and array.null_count
            for place, array in zip(layout.places, arrays, strict=True)
        )
    batch = Batch(words[:end], np.full(end, time, np.int64), diffs[:end])
    return consolidated(batch, interner.seed) if has_nulls else batch


def read_blocks(
    tables: Iterator[pa.Table], types: Sequence[SqlType], layout: Layout, interner: Interner
) -> Iterator[tuple[Words, Ints]]:
    """Yield the rows, in `layout`, and the diffs of tables of columns of `types` and diffs.

    Rows are overwritten by the next.
    """
    memory = np.empty((BLOCK, layout.words), np.int64)
    for arrays, counts in _blocks(tables, types):
        words = memory[: len(counts)]
        words[:] = 0
        fill_words(words, arrays, layout, interner)
        yield words, np.array(counts)


def _blocks(
    tables: Iterator[pa.Table], types: Sequence[SqlType]
) -> Iterator[tuple[list[pa.Array], Ints]]:
    """Yield the columns and the diffs of at most `BLOCK` updates.

    The words of so many rows fit in the processor's cache, where they are written by column.
    """
    wanted = list(map(arrow_type, types))
    for table in tables:
        for batch in table.to_batches(BLOCK):
            arrays = [
                column if column.type == type else column.cast(type)
                for type, column in zip(wanted, batch.columns, strict=False)
            ]
            yield arrays, integers(batch.column(-1))


def count_updates(input: Input) -> int:
    """Return the number of updates at all times."""
    rows: int = sum(table.num_rows for table in input.tail)
    for path in input.files:
        begin, end = _part_of(input, pq.read_metadata(path).num_rows)
        rows += end - begin
    return rows


def tables_until(input: Input, picked: Sequence[int], time: Timestamp) -> Iterator[pa.Table]:
    """Yield the updates until a time: the columns at `picked`, and the diffs."""
    names = [input.file_names[i] for i in picked]
    for path in input.files:
        with pq.ParquetFile(path) as file:
            for batch in _batches(input, file, [*names, TIME, DIFF]):
                yield _until(pa.Table.from_batches([batch]).select([*names, TIME, DIFF]), time)
    for table in input.tail:
        last = table.num_columns - 1
        yield _until(table.select([*picked, last - 1, last]), time)


def _part_of(input: Input, rows: int) -> tuple[int, int]:
    """Return from where to where the rows of a file belong to the input's part."""
    return rows * input.part // input.parts, rows * (input.part + 1) // input.parts


def _batches(input: Input, file: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that belong to the input's part; others are not decoded if need be.

    Whole groups of rows beside the part are skipped.
    """
    begin, end = _part_of(input, file.metadata.num_rows)
    groups: list[int] = []
    first = at = 0
    for number in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if at < end and at + rows > begin:
            if not groups:
                first = at
            groups.append(number)
        at += rows
    at = first
    for batch in file.iter_batches(AT_ONCE, row_groups=groups, columns=names):
        low, high = max(begin - at, 0), min(end - at, batch.num_rows)
        at += batch.num_rows
        if low < high:
            yield batch if high - low == batch.num_rows else batch.slice(low, high - low)


def _until(table: pa.Table, time: Timestamp) -> pa.Table:
    times = table.column(table.num_columns - 2)
    if table.num_rows and pc.max(times).as_py() > time:
        table = table.filter(pc.less_equal(times, time))
    return table.remove_column(table.num_columns - 2)
