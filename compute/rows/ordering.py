"""The order of rows: keys for Python's sort, which is stable, one key of the order at a time."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

from foreshore.compute.rows.source import TooMany
from foreshore.expr.equality import has_one_form, is_plain, python_key
from foreshore.types import ColumnType, Datum, SqlType

Row = tuple[Datum, ...]


class SortKey:
    """A column by which rows are sorted."""

    __slots__ = ("_datum", "_nullable", "_reverse", "of")

    def __init__(self, place: int, column: ColumnType, descending: bool, nulls_first: bool) -> None:
        self._reverse = descending
        self._nullable = column.nullable
        # Python orders such data as SQL does, if none of them is None.
        self._datum = itemgetter(place) if is_plain(column.type) else None
        self.of = _key(place, column.type, nulls_first == descending)

    def sort(self, rows: list[Any]) -> None:
        """Sort rows by the key; equal ones keep their order."""
        key = self._datum
        if key is None or (self._nullable and None in map(key, rows)):
            rows.sort(key=self.of, reverse=self._reverse)
        else:
            rows.sort(key=key, reverse=self._reverse)


def _key(place: int, type: SqlType, none_is_greatest: bool) -> Callable[[Any], Any]:
    """Return the key of a row by one of its columns, among which None is greatest or least."""

    def key(row: Row) -> Any:
        datum = row[place]
        if datum is None:
            return (none_is_greatest, None)
        return (not none_is_greatest, python_key(datum, type))

    return key


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
