"""Consolidation in memory: updates sorted and added up, column by column.

The first column sorts all rows. Each further one sorts only those that all columns before it leave
equal, within their places. Rows of most tables differ in their first columns, so that the others
are hardly looked at, and runs that are sorted already are merged in linear time (NumPy's stable
sort is a merge sort that finds runs).

Columns are those of `exact_schema`: integers, or values that Arrow can compare bit by bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[Any]]


def is_sortable(schema: pa.Schema) -> bool:
    """Whether updates with this schema can be sorted here: no column is nested."""
    return not any(map(pa.types.is_nested, schema.types))


def consolidated(updates: pa.RecordBatch) -> pa.RecordBatch:
    """Return updates sorted by all columns but the last, whose values are added for equal ones.

    The last column has the diffs, and zeros are left out. NULL comes after all values. Raises
    OverflowError if a sum is beyond 64 bits.
    """
    rows = updates.num_rows
    if not rows:
        return updates
    *keys, diffs = updates.columns
    order, is_equal = _ordered(keys, rows)
    sums = diffs.to_numpy()[order]
    if is_equal.any():
        starts = np.flatnonzero(~is_equal)
        order, sums = order[starts], _sums(sums, starts)
    if not sums.all():
        kept = sums != 0
        order, sums = order[kept], sums[kept]
    if len(order) == rows and (order[1:] > order[:-1]).all():
        return updates
    taken = updates.take(pa.array(order))
    return pa.RecordBatch.from_arrays(
        [*taken.columns[:-1], pa.array(sums, pa.int64())], schema=updates.schema
    )


def _ordered(keys: Sequence[pa.Array], rows: int) -> tuple[Numbers, Numbers]:
    """Return the order of the rows, and which of them in it are equal to the one before."""
    first = _codes(keys[0])
    order = np.argsort(first, kind="stable")
    is_equal = np.zeros(rows, np.bool_)
    is_equal[1:] = first[order[1:]] == first[order[:-1]]
    for column in keys[1:]:
        if not is_equal.any():
            break
        tied = is_equal.copy()
        tied[:-1] |= is_equal[1:]
        places = np.flatnonzero(tied)
        among = order[places]
        codes = _codes(column.take(pa.array(among)) if len(among) < rows else column)
        if len(among) == rows:
            codes = codes[among]
        equal = is_equal[places]
        if (equal[1:] & (codes[1:] < codes[:-1])).any():
            within = np.lexsort((codes, np.cumsum(~equal)))
            order[places], codes = among[within], codes[within]
        equal[1:] &= codes[1:] == codes[:-1]
        is_equal[places] = equal
    return order, is_equal


def _codes(column: pa.Array) -> Numbers:
    """Return integers that compare as the values do, with NULL as the greatest."""
    if not column.null_count:
        if pa.types.is_integer(column.type):
            return np.asarray(column.to_numpy())
        if pa.types.is_decimal128(column.type):
            halves = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :]
            low, high = halves[: 2 * len(column) : 2], halves[1 : 2 * len(column) : 2]
            if np.array_equal(low >> 63, high):
                return low
    encoded = column.dictionary_encode(null_encoding="mask")
    distinct = encoded.dictionary
    ranks = np.empty(len(distinct) + 1, np.int64)
    ranks[pc.sort_indices(distinct).to_numpy()] = np.arange(len(distinct))
    ranks[-1] = len(distinct)
    places = pc.fill_null(encoded.indices, len(distinct))
    return np.asarray(ranks[places.to_numpy()])


def _sums(values: Numbers, starts: Numbers) -> Numbers:
    """Return the sums of the values from each start up to the next; raises OverflowError."""
    sums = np.add.reduceat(values, starts)  # modulo 2**64
    sizes = np.add.reduceat(np.abs(values.astype(np.float64)), starts)
    ends = np.append(starts[1:], len(values))
    for group in np.flatnonzero(sizes >= 2.0**62).tolist():
        total = sum(values[starts[group] : ends[group]].tolist())
        if not -(2**63) <= total < 2**63:
            raise OverflowError("the sum of diffs is beyond 64 bits")
    return np.asarray(sums)
