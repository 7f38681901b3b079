"""PARTITION BY of a materialized view: the columns by which its rows lie together in files.

    CREATE MATERIALIZED VIEW v WITH (PARTITION BY (day, shop)) AS SELECT day, shop, ... FROM sales

Files are sorted by the columns in their order, so these are the first ones, and row groups that
hold other values of them are skipped. Their types sort in files as their values do.
"""

from collections.abc import Sequence

from foreshore.errors import InvalidParameterValue, UndefinedColumn
from foreshore.types import ColumnType

_TYPES = frozenset(
    "bool int2 int4 int8 oid uint2 uint4 uint8 date time timestamp timestamptz mz_timestamp bytea"
    " text varchar bpchar name uuid".split()
)


def check_partition(
    by: Sequence[tuple[str, int]], names: Sequence[str], columns: Sequence[ColumnType]
) -> None:
    """Raise an error unless `by`, names with offsets, are the first columns and can be sorted."""
    for place, (name, at) in enumerate(by):
        if name not in names:
            raise UndefinedColumn(f'column "{name}" does not exist', position=at + 1)
        if place >= len(names) or names[place] != name:
            raise InvalidParameterValue(
                "PARTITION BY columns should be a prefix of the view's columns",
                detail=f'Column {place + 1} of the view is "{names[min(place, len(names) - 1)]}".',
                hint="Select the columns in the order in which the rows are to lie together.",
                position=at + 1,
            )
        type = columns[place].type
        if type.name not in _TYPES:
            raise InvalidParameterValue(
                f'PARTITION BY column "{name}" has type {type}, which is not sorted in files',
                position=at + 1,
            )
