"""Reading a collection's updates up to a time, as batches."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.convert import fill_words, flat, integers
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Layout
from foreshore.types import ColumnType, arrow_type
from foreshore.update import DIFF, TIME, Timestamp

AT_ONCE = 1 << 18  # rows


def read_until(
    input: Input,
    columns: Sequence[ColumnType],
    picked: Sequence[int],
    layout: Layout,
    interner: Interner,
    time: Timestamp,
) -> Batch:
    """Return the updates until a time, all of them at that time and not consolidated.

    Their rows have the columns at `picked`, in `layout`.
    """
    most = count_updates(input)
    words = np.zeros((most, layout.words), np.int64)
    diffs = np.empty(most, np.int64)
    end = 0
    for table in _tables(input, picked, time):
        for batch in table.to_batches(AT_ONCE):
            arrays = [
                column
                if column.type == (wanted := arrow_type(columns[i].type))
                else column.cast(wanted)
                for i, column in zip(picked, map(flat, batch.columns), strict=False)
            ]
            start, end = end, end + batch.num_rows
            fill_words(words[start:end], arrays, layout, interner)
            diffs[start:end] = integers(flat(batch.column(-1)))
    return Batch(words[:end], np.full(end, time, np.int64), diffs[:end])


def count_updates(input: Input) -> int:
    """Return the number of updates at all times."""
    rows: int = sum(table.num_rows for table in input.tail)
    for path in input.files:
        rows += pq.read_metadata(path).num_rows
    return rows


def _tables(input: Input, picked: Sequence[int], time: Timestamp) -> Iterator[pa.Table]:
    """Yield the updates until a time: the columns at `picked`, and the diffs."""
    names = [input.file_names[i] for i in picked]
    for path in input.files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(AT_ONCE, columns=[*names, TIME, DIFF]):
                yield _until(pa.Table.from_batches([batch]).select([*names, TIME, DIFF]), time)
    for table in input.tail:
        last = table.num_columns - 1
        yield _until(table.select([*picked, last - 1, last]), time)


def _until(table: pa.Table, time: Timestamp) -> pa.Table:
    times = table.column(table.num_columns - 2)
    if table.num_rows and pc.max(times).as_py() > time:
        table = table.filter(pc.less_equal(times, time))
    return table.remove_column(table.num_columns - 2)
