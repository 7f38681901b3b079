"""Rows of relations of the catalog as tuples, found by values of their columns."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.adapter.introspection.live_relations import live_settings
from foreshore.adapter.introspection.relations import origin_of
from foreshore.adapter.plans.catalog_relations import NAMED
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.parts import RelationRows
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.builtin.settings import setting_row
from foreshore.compute.arrange.row_reader import Reader, reader_of
from foreshore.compute.linear import flat
from foreshore.compute.rows.program import TooMany
from foreshore.datum import from_array
from foreshore.ids import GlobalId
from foreshore.table_rows import Row
from foreshore.types import ColumnType, Datum

MOST = 20_000  # rows of a relation whose values are put into a dictionary: some milliseconds
MOST_CHANGED = 8  # parts of an earlier state that are gone, and that are new


class _Part:
    """Rows by columns that are looked up for the first time when needed."""

    def __init__(self, columns: Sequence[ColumnType], rows: pa.Table) -> None:
        self.rows = rows
        self._types = [column.type for column in columns]
        self._readers: dict[int, Reader] = {}
        self._reads: dict[frozenset[int], list[Reader]] = {}  # of rows with some columns
        self._places: dict[tuple[int, ...], dict[Row, list[int]]] = {}

    def places(self, columns: tuple[int, ...], keys: Sequence[Row]) -> Sequence[int]:
        """Return the places of rows with one of `keys` in some columns."""
        if not columns:
            return range(self.rows.num_rows)
        by_key = self._places.get(columns)
        if by_key is None:
            by_key = self._places_by(columns)
        return [at for key in keys for at in by_key.get(key, ())]

    def read(self, places: Sequence[int], used: frozenset[int]) -> list[Row]:
        """Return the rows at some places, with the columns that are `used`."""
        reads = self._reads.get(used)
        if reads is None:
            reads = [self._reader(i) if i in used else _skipped for i in range(len(self._types))]
            self._reads[used] = reads
        return [tuple([read(at) for read in reads]) for at in places]

    def _places_by(self, columns: tuple[int, ...]) -> dict[Row, list[int]]:
        found: dict[Row, list[int]] = {}
        self._places[columns] = found
        values = [from_array(flat(self.rows.column(i)), self._types[i]) for i in columns]
        for place, each in enumerate(zip(*values, strict=True)):
            found.setdefault(each, []).append(place)
        return found

    def _reader(self, column: int) -> Reader:
        reader = self._readers.get(column)
        if reader is None:
            array = flat(self.rows.column(column))
            reader = self._readers[column] = reader_of(array, self._types[column])
        return reader


class KeyedRows:
    """The rows of a relation in a state of the catalog, by columns.

    They are those of an earlier state, without the parts that have changed since, and the parts
    that are new: the next state has almost the same rows, and places by key take long to find.
    """

    def __init__(
        self, columns: Sequence[ColumnType], rows: RelationRows, earlier: "KeyedRows | None" = None
    ) -> None:
        self._whole: _Part  # of the earlier state
        self._parts: Sequence[pa.Table]  # in it
        self._gone: list[range]  # their places in it
        self._new: list[_Part]
        if earlier is not None:
            present, known = {*map(id, rows.parts)}, {*map(id, earlier._parts)}
            new = [part for part in rows.parts if id(part) not in known]
            if len(new) <= MOST_CHANGED:
                made = {id(each.rows): each for each in earlier._new}
                self._whole, self._parts = earlier._whole, earlier._parts
                self._new = [made.get(id(part)) or _Part(columns, part) for part in new]
                self._gone = [each for part, each in self._places() if id(part) not in present]
                if len(self._gone) <= MOST_CHANGED:
                    return
        self._whole, self._parts = _Part(columns, rows.table), rows.parts
        self._gone, self._new = [], []

    def _places(self) -> Iterator[tuple[pa.Table, range]]:
        """Yield the parts of the earlier state, and where they are in it."""
        begin = 0
        for part in self._parts:
            yield part, range(begin, begin + part.num_rows)
            begin += part.num_rows

    def under(
        self,
        columns: tuple[int, ...],
        used: frozenset[int],
        keys: Sequence[Row],
        most: int | None = None,
    ) -> list[Row]:
        """Return the rows with one of `keys` in some columns; all of them if these are none.

        They have the columns that are `used`. Raises TooMany if there are more than `most`.
        """
        places = self._whole.places(columns, keys)
        if self._gone:
            places = [at for at in places if not any(at in each for each in self._gone)]
        if most is not None and len(places) > most:
            raise TooMany
        rows = self._whole.read(places, used)
        for part in self._new:
            rows += part.read(part.places(columns, keys), used)
        if most is not None and len(rows) > most:
            raise TooMany
        return rows


class NamedRows:
    """The variables of the session, of which one is looked up by its name."""

    def __init__(self, context: StatementContext, builtin: Builtin) -> None:
        self._context = context
        self._columns = builtin.desc
        self._name = builtin.desc.names.index(NAMED[builtin.name])

    def under(
        self,
        columns: tuple[int, ...],
        used: frozenset[int],
        keys: Sequence[Row],
        most: int | None = None,
    ) -> list[Row]:
        """Return what `KeyedRows.under` does."""
        if columns == (self._name,):
            return [row for (name,) in keys for row in self._made(str(name))]
        found = self._made()
        if columns:
            wanted = {*keys}
            found = [row for row in found if tuple([row[i] for i in columns]) in wanted]
        if most is not None and len(found) > most:
            raise TooMany
        return found

    def _made(self, only: str | None = None) -> list[Row]:
        rows = map(setting_row, live_settings(self._context, only))
        return [tuple([_datum(row.get(name)) for name in self._columns.names]) for row in rows]


def _datum(value: Any) -> Datum:
    found: Datum = tuple(value) if isinstance(value, list) else value
    return found


def _skipped(_: int) -> Datum:
    return None


def keyed_rows(
    context: StatementContext, id: GlobalId, rows: RelationRows | None
) -> KeyedRows | NamedRows | None:
    """Return the rows of a relation of the catalog, which have been made unless each has a name.

    None if they are many, or depend on more than the catalog.
    """
    builtin = BUILTINS[id]
    if builtin.name in NAMED:
        return NamedRows(context, builtin)
    origin = origin_of(context, builtin)
    if origin is None or rows is None or rows.count > MOST:
        return None
    make = partial(KeyedRows, builtin.desc.columns)
    keyed: KeyedRows = context.names.catalog_answers.made_of(origin, rows, make)
    return keyed
