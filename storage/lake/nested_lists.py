"""Lists of lists in files and Arrow streams, which are arrays of several dimensions."""

from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.errors import DataError, data_error
from foreshore.list_items import items_of, with_items
from foreshore.shaped import EMPTY, from_rows, stored_shaped
from foreshore.types import SqlType, item_of


def arrays_of_lists(column: pa.Array, type: SqlType) -> tuple[pa.Array, pa.Array]:
    """Return arrays of `type` in place of lists of lists, NULL where it fails, and the errors."""
    places = _with_places(column).to_pylist()
    leaves = column
    depth = 0
    while pa.types.is_list(leaves.type):
        leaves, depth = items_of(leaves), depth + 1
    data = from_array(leaves, item_of(type))
    found: list[bytes | None] = []
    errors: list[str | None] = []
    for rows in places:
        array, error = EMPTY, None
        try:
            array = from_rows(rows or [], depth)
        except DataError as wrong:
            error = data_error(wrong.sqlstate, wrong.message)
        picked: Any = array.items  # places among the leaves
        items = tuple([data[place] for place in picked])
        stored = stored_shaped(array._replace(items=items), type)
        found.append(None if rows is None or error is not None else stored)
        errors.append(error)
    return pa.array(found, pa.binary()), pa.array(errors, pa.string())


def _with_places(column: pa.Array) -> pa.Array:
    """Return lists of lists with numbers in place of the elements, from 0 on."""
    if pa.types.is_list(column.type):
        return with_items(column, _with_places(items_of(column)))
    return pa.array(range(len(column)), pa.int64())
