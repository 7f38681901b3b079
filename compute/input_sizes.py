"""How many rows the inputs of an evaluation have, and how long their values are: estimates."""

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.expr.held import Known, Shape
from foreshore.ids import GlobalId


def known_sizes(inputs: Mapping[GlobalId, Input]) -> Known:
    """Return the shapes of inputs, from the metadata of files and what is in memory."""
    return {id: _shape(each) for id, each in inputs.items()}


def _shape(input: Input) -> Shape:
    width = len(input.schema)
    parts = [*map(_of_file, input.files), *(_of_table(each, width) for each in input.tail)]
    rows = sum(count for count, _ in parts)
    totals = [sum(sizes[i] for _, sizes in parts if i < len(sizes)) for i in range(width)]
    return Shape(max(rows, 1), tuple(total // max(rows, 1) for total in totals))


def _of_table(table: pa.Table, width: int) -> tuple[int, tuple[int, ...]]:
    return table.num_rows, tuple(column.nbytes for column in table.columns[:width])


@lru_cache(maxsize=4096)
def _of_file(path: str) -> tuple[int, tuple[int, ...]]:
    """Return the rows of a batch's file, which never changes, and the bytes of each column."""
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid):  # the engine reports the same error
        return 0, ()
    roots = [metadata.schema.column(i).path.partition(".")[0] for i in range(metadata.num_columns)]
    sizes: dict[str, int] = dict.fromkeys(roots, 0)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for place, root in enumerate(roots):
            sizes[root] += group.column(place).total_uncompressed_size
    return metadata.num_rows, tuple(sizes.values())
