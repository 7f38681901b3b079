"""How many rows the inputs of an evaluation have, and how long their values are: estimates."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foreshore.compute.engine import Input
from foreshore.expr.held import Known, Shape
from foreshore.ids import GlobalId
from foreshore.storage.batch import SIZES, sizes_of


def known_sizes(inputs: Mapping[GlobalId, Input]) -> Known:
    """Return the shapes of inputs, from the metadata of files and what is in memory."""
    return {id: _shape(each) for id, each in inputs.items()}


def _shape(input: Input) -> Shape:
    width = len(input.schema)
    parts = [_of_table(each, width) for each in input.tail]
    with suppress(OSError, pa.ArrowInvalid):  # the engine reports the same error
        parts += map(_of_file, input.files)
    rows = max(sum(count for count, *_ in parts), 1)
    totals = [sum(sizes[i] for _, *sizes in parts) for i in range(width)]
    return Shape(rows, tuple(total // rows for total in totals))


def _of_table(updates: pa.Table, width: int) -> tuple[int, ...]:
    """Return the number of rows, and the bytes of each of the first columns."""
    columns = updates.columns
    if np.abs(columns[-1].to_numpy()).max(initial=1) == 1:
        return updates.num_rows, *(column.nbytes for column in columns[:width])
    return tuple(sizes_of(updates))


@lru_cache(maxsize=4096)
def _of_file(path: str) -> tuple[int, ...]:
    """Return the same of a batch's file, which never changes.

    A file that was written without `SIZES` tells only what it takes itself.
    """
    metadata = pq.read_metadata(path)
    known = (metadata.metadata or {}).get(SIZES)
    if known is not None:
        return msgspec.json.decode(known, type=tuple[int, ...])
    roots = [metadata.schema.column(i).path.partition(".")[0] for i in range(metadata.num_columns)]
    sizes: dict[str, int] = dict.fromkeys(roots, 0)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for place, root in enumerate(roots):
            sizes[root] += group.column(place).total_uncompressed_size
    return metadata.num_rows, *sizes.values()
