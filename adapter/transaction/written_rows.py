"""The rows that a transaction writes to one table: a persistent list of parts.

Adding a part returns another list that shares its storage with the old one. So a savepoint keeps
the list of its time, and a transaction block of many small INSERTs costs constant time for each.
The same rows by key are kept with the storage; they catch up with the list when asked for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foreshore.compute.keys.layout import KeyedRows, KeyLayout
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.table_rows import TableRows


@dataclass(frozen=True, slots=True)
class Written:
    """Rows on their way into a table, and the same by each of its unique keys."""

    rows: TableRows
    keyed: dict[str, KeyedRows]


class WrittenRows:
    """The parts that a transaction has written to one table, in order."""

    __slots__ = ("_length", "_storage")

    def __init__(self, parts: Iterable[Written] = ()) -> None:
        self._storage = _Storage(list(parts))
        self._length = len(self._storage.parts)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Written]:
        return iter(self._storage.parts[: self._length])

    def adding(self, part: Written) -> "WrittenRows":
        """Return the list with one more part."""
        longer = WrittenRows.__new__(WrittenRows)
        is_newest = 0 < self._length == len(self._storage.parts)
        longer._storage = self._storage if is_newest else _Storage([*self])
        longer._storage.parts.append(part)
        longer._length = self._length + 1
        return longer

    def by_key(self, layout: KeyLayout) -> OwnRows:
        """Return the rows by a key of their table."""
        if not self._length:
            return OwnRows(layout)
        if len(self._storage.parts) > self._length:  # a longer list was rolled back to this one
            self._storage = _Storage([*self])
        return self._storage.by_key(layout)


class _Storage:
    """Parts that are only added to, and the same by key, each as far as it was asked for."""

    def __init__(self, parts: list[Written]) -> None:
        self.parts = parts
        self._by_key: dict[str, tuple[OwnRows, int]] = {}

    def by_key(self, layout: KeyLayout) -> OwnRows:
        name = layout.constraint.name
        own, done = self._by_key.get(name) or (OwnRows(layout), 0)
        if done < len(self.parts):
            own.add(_keyed(part, layout) for part in self.parts[done:])
            self._by_key[name] = own, len(self.parts)
        return own


def _keyed(part: Written, layout: KeyLayout) -> KeyedRows:
    name = layout.constraint.name
    if name not in part.keyed:  # the constraint is newer than the rows
        part.keyed[name] = KeyedRows(layout, part.rows)
    return part.keyed[name]
