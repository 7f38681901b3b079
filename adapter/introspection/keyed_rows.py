"""Rows of relations of the catalog as tuples, found by values of their columns."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.adapter.introspection.live_relations import live_settings
from foreshore.adapter.introspection.relations import origin_of
from foreshore.adapter.plans.catalog_relations import NAMED
from foreshore.adapter.statement.context import StatementContext
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


class KeyedRows:
    """The rows of a relation, by columns that are looked up for the first time when needed."""

    def __init__(self, columns: Sequence[ColumnType], rows: pa.Table) -> None:
        self._types = [column.type for column in columns]
        self._rows = rows
        self._readers: dict[int, Reader] = {}
        self._reads: dict[frozenset[int], list[Reader]] = {}  # of rows with some columns
        self._places: dict[tuple[int, ...], dict[Row, list[int]]] = {}

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
        places: Sequence[int] = range(self._rows.num_rows)
        if columns:
            by_key = self._places_by(columns)
            places = [at for key in keys for at in by_key.get(key, ())]
        if most is not None and len(places) > most:
            raise TooMany
        reads = self._reads.get(used)
        if reads is None:
            reads = [self._reader(i) if i in used else _skipped for i in range(len(self._types))]
            self._reads[used] = reads
        return [tuple([read(at) for read in reads]) for at in places]

    def _places_by(self, columns: tuple[int, ...]) -> Mapping[Row, list[int]]:
        found = self._places.get(columns)
        if found is None:
            found = self._places[columns] = {}
            values = [from_array(flat(self._rows.column(i)), self._types[i]) for i in columns]
            for place, each in enumerate(zip(*values, strict=True)):
                found.setdefault(each, []).append(place)
        return found

    def _reader(self, column: int) -> Reader:
        reader = self._readers.get(column)
        if reader is None:
            array = flat(self._rows.column(column))
            reader = self._readers[column] = reader_of(array, self._types[column])
        return reader


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


def keyed_rows(context: StatementContext, id: GlobalId) -> KeyedRows | NamedRows | None:
    """Return the rows of a relation of the catalog as the session sees them.

    None if they are not made yet, are many, or depend on more than the catalog's present state.
    """
    builtin = BUILTINS[id]
    if builtin.name in NAMED:
        return NamedRows(context, builtin)
    origin = origin_of(context, builtin)
    if origin is None:
        return None
    answers, state = context.names.catalog_answers, context.names.state
    rows = answers.known(state, origin)
    if rows is None or rows.num_rows > MOST:
        return None
    keyed: KeyedRows = answers.kept_with(origin, rows, partial(KeyedRows, builtin.desc.columns))
    return keyed
