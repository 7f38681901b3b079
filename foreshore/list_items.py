"""The items of columns of lists in Arrow, which may be parts of other columns."""

import pyarrow as pa
import pyarrow.compute as pc


def items_of(column: pa.Array) -> pa.Array:
    """Return the items of a column of lists, which may be part of another column."""
    if not len(column):
        return column.values.slice(0, 0)
    offsets = column.offsets
    return column.values.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py())


def with_items(column: pa.Array, items: pa.Array) -> pa.Array:
    """Return a column of lists with other items in place of `items_of(column)`."""
    if not len(column):
        return pa.array([], pa.list_(items.type))
    offsets = pc.subtract(column.offsets, column.offsets[0])
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)
