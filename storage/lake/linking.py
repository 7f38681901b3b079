"""Batch files as data files of other formats, without a copy.

A batch is a Parquet file of updates: the columns of the row, then time and diff. If all of a
shard's updates up to a time insert one row each, its rows at that time are those of its files, and
a table format may name them as they are: readers leave out columns that its schema does not have.
Files are linked, so that neither compaction nor the other table's clean-up concerns the other.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.storage.lake.columns import file_type
from foreshore.types import SqlType, arrow_type
from foreshore.update import Timestamp


def are_as_in_files(types: Sequence[SqlType]) -> bool:
    """Whether values of these types are the same in batches and in files for other programs."""
    return all(
        type.name != "time" and type.name != "number" and arrow_type(type) == file_type(type)
        for type in types
    )


def only_inserts(paths: Sequence[Path], as_of: Timestamp) -> bool:
    """Whether each update in the files is the insertion of one row, at or before `as_of`.

    Only the statistics of the files are looked at.
    """
    for path in paths:
        with pq.ParquetFile(path) as file:
            for i in range(file.num_row_groups):
                group = file.metadata.row_group(i)
                time, diff = (group.column(group.num_columns - k).statistics for k in (2, 1))
                if time is None or diff is None or not time.has_min_max or not diff.has_min_max:
                    return False
                if time.max > as_of or diff.min != 1 or diff.max != 1:
                    return False
    return True


def inserted(tail: Sequence[pa.Table], as_of: Timestamp) -> list[pa.RecordBatch] | None:
    """Return the rows that updates in memory insert up to `as_of`; None if they do other things."""
    found: list[pa.RecordBatch] = []
    for table in tail:
        width = table.num_columns - 2
        known = table.filter(pc.less_equal(table.column(width), as_of))
        if known.num_rows and not pc.all(pc.equal(known.column(width + 1), 1)).as_py():
            return None
        found += known.select(list(range(width))).to_batches()
    return found
