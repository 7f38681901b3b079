"""The order of rows: keys for Python's sort, which is stable, one key of the order at a time."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from foreshore.compute.rows.source import TooMany
from foreshore.expr.equality import has_one_form, python_key
from foreshore.types import ColumnType, Datum

Row = tuple[Datum, ...]


class SortKey:
    """A column by which rows are sorted."""

    __slots__ = ("_reverse", "of")

    def __init__(self, place: int, column: ColumnType, descending: bool, nulls_first: bool) -> None:
        self._reverse = descending
        self.of = _key(place, column, nulls_first == descending)

    def sort(self, rows: list[Any]) -> None:
        """Sort rows by the key; equal ones keep their order."""
        rows.sort(key=self.of, reverse=self._reverse)


def _key(place: int, column: ColumnType, none_is_greatest: bool) -> Callable[[Any], Any]:
    """Return the key of a row by one of its columns, among which None is greatest or least."""
    type = column.type
    if not column.nullable and _sorts_itself(column):
        return itemgetter(place)

    def key(row: Row) -> Any:
        datum = row[place]
        if datum is None:
            return (none_is_greatest, None)
        return (not none_is_greatest, python_key(datum, type))

    return key


def _sorts_itself(column: ColumnType) -> bool:
    """Whether Python orders data of a column, none of which is None, as SQL does."""
    return column.type.name in ("bool", "int2", "int4", "int8", "date", "timestamp", "timestamptz")


def sort_of(columns: Sequence[ColumnType]) -> Callable[[list[Any], Sequence[SortKey]], None]:
    """Return what sorts rows by keys, all columns among them."""
    return sort_rows if all(has_one_form(each.type) for each in columns) else sort_whole_rows


def sort_whole_rows(rows: list[Any], keys: Sequence[SortKey]) -> None:
    """Sort rows by keys, all columns among them; raises TooMany if equal rows look different."""
    sort_rows(rows, keys)
    for one, other in pairwise(rows):
        if all([key.of(one) == key.of(other) for key in keys]) and repr(one) != repr(other):
            raise TooMany


def sort_rows(rows: list[Any], keys: Sequence[SortKey]) -> None:
    """Sort rows by keys, the first one first."""
    if len(rows) < 2:
        return
    for key in reversed(keys):
        key.sort(rows)
