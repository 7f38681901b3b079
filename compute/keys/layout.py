"""How the rows of a table are arranged by a unique key: the key of a row, its hash, the updates.

A row whose key no other can collide with, as a NULL is in it, is left out. `KeyedRows` are rows on
their way into the table by the key: few as tuples, many as hashed and sorted columns.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from foreshore.compute.arrange.arrangement import TAIL_ROWS, Arrangement
from foreshore.compute.arrange.key import (
    MASK,
    SEED,
    Words,
    fold_one,
    hash_columns,
    hash_words,
    key_words,
)
from foreshore.compute.arrange.run import Ints, Updates, sort_and_consolidate
from foreshore.constraint import Unique
from foreshore.expr.equality import is_plain
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.table_rows import Row, TableRows, columns_of_rows
from foreshore.types import RelationDesc, arrow_type
from foreshore.update import Timestamp

FEW = 16  # rows up to which keys are looked up one by one
SOME = 2_000  # rows of one change up to which its transaction knows them one by one
MANY = TAIL_ROWS  # rows above which work on them does not belong on the event loop


class SecondaryName(NamedTuple):
    """Columns of a table that are no key, in the rows of the index of a unique constraint."""

    constraint: str
    columns: tuple[int, ...]


KeyName: TypeAlias = str | SecondaryName  # str: of a unique constraint


class Change(Struct, frozen=True):
    """One row that is inserted (diff 1) or deleted (-1), by its key."""

    hash: int
    key: Row
    row: Row
    diff: int


class KeyLayout:
    """The layout of `table`, in the columns `desc`, by the columns of a unique constraint."""

    def __init__(self, table: GlobalId, constraint: Unique, desc: RelationDesc) -> None:
        self.table = table
        self.constraint = constraint
        self.columns = desc.columns
        self.types = [desc.columns[i].type for i in constraint.columns]
        self.schema = pa.schema(
            [pa.field(f"c{i}", arrow_type(each.type)) for i, each in enumerate(desc.columns)]
        )
        self._desc = desc
        self._drops_nulls = constraint.nulls_distinct
        self.takes_tuples = takes_tuples(constraint, desc)
        self._is_integer = [type.name in ("int2", "int4", "int8") for type in self.types] == [True]
        self._hashed: tuple[Row | None, int] = None, 0  # the last key: an UPDATE needs it again

    def arrangement(self, since: Timestamp) -> Arrangement:
        """Return an empty arrangement of the table's rows by the key."""
        name = f"{self.table}.{self.constraint.name}"
        return Arrangement(name, self.schema, self.types, self.key_of, since)

    def by(self, columns: tuple[int, ...]) -> "KeyLayout":
        """Return the layout of the same rows by other columns, by which many may be equal."""
        return KeyLayout(self.table, Unique("", columns), self._desc)

    # --- as columns

    def nothing(self) -> pa.RecordBatch:
        """Return no rows."""
        arrays = [pa.array([], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def key_of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the key."""
        return [rows.column(i) for i in self.constraint.columns]

    def hashes(self, keys: Sequence[pa.Array]) -> Words:
        """Return the hashes of keys, given as columns."""
        return hash_columns(keys, self.types, len(keys[0]))

    def key_hashes(self, rows: pa.RecordBatch) -> Words:
        """Return the hashes of the rows' keys, without those that collide with nothing."""
        keys = self.key_of(rows)
        hashes = hash_columns(keys, self.types, rows.num_rows)
        if self._drops_nulls and any(key.null_count for key in keys):
            valid = np.logical_and.reduce([key.is_valid().to_numpy(False) for key in keys])
            hashes = hashes[valid]
        return hashes

    def hashes_of_rows(self, rows: pa.RecordBatch) -> Words:
        """Return a hash of each row's key; keys that collide with nothing have one of their own."""
        keys = self.key_of(rows)
        hashes = hash_columns(keys, self.types, rows.num_rows)
        if self._drops_nulls and any(key.null_count for key in keys):
            lone = np.zeros(rows.num_rows, np.bool_)
            for key in keys:
                lone |= key.is_null().to_numpy(zero_copy_only=False)
            places = np.flatnonzero(lone)
            hashes[places] = places  # as likely to meet another as any two hashes are
        return hashes

    def updates(self, rows: pa.Table) -> Updates:
        """Return rows with `__diff` as updates at time 0, many of them sorted; may take long."""
        columns, diffs = split_diffs(rows)
        if self._drops_nulls and any(columns[i].null_count for i in self.constraint.columns):
            kept = None
            for i in self.constraint.columns:
                valid = columns[i].is_valid()
                kept = valid if kept is None else pc.and_(kept, valid)
            columns, diffs = [column.filter(kept) for column in columns], diffs.filter(kept)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        found = Updates(
            batch,
            hash_columns(self.key_of(batch), self.types, len(batch)),
            hash_columns(batch.columns, None, len(batch)),
            np.zeros(len(batch), np.int64),
            diffs.to_numpy(zero_copy_only=False),
        )
        return sort_and_consolidate(found, 0) if len(batch) > TAIL_ROWS else found

    # --- one by one, if the layout `takes_tuples`

    def key(self, row: Row) -> Row | None:
        """Return the key of a row; None if a part of it is NULL."""
        columns = self.constraint.columns
        if len(columns) == 1:
            part = row[columns[0]]
            return None if part is None else (part,)
        key = tuple([row[i] for i in columns])
        return None if None in key else key

    def hash(self, key: Row) -> int:
        """Return the hash of a key, in which nothing is NULL."""
        last, hash = self._hashed
        if key == last:
            return hash
        if self._is_integer:
            hash = fold_one(SEED, key[0] & MASK)  # type: ignore[operator]
        else:
            words = key_words(key, self.types)
            assert words is not None, key
            hash = hash_words(words)
        self._hashed = key, hash
        return hash

    def changes(self, rows: TableRows) -> list[Change]:
        """Return rows by their keys, in order."""
        found, columns = [], self.constraint.columns
        at = columns[0] if len(columns) == 1 else None
        for row, diff in zip(rows.tuples, rows.diffs, strict=True):
            key = self.key(row) if at is None else None if row[at] is None else (row[at],)
            if key is not None:
                found.append(Change(self.hash(key), key, row, diff))
        return found

    def updates_of(self, changes: Sequence[Change], times: Ints | None = None) -> Updates:
        """Return changes as updates at `times`, or at time 0."""
        count = len(changes)
        columns = columns_of_rows([change.row for change in changes], self.columns)
        return Updates(
            pa.RecordBatch.from_arrays(columns, schema=self.schema),
            np.array([change.hash for change in changes], np.uint64),
            hash_columns(columns, None, count),
            np.zeros(count, np.int64) if times is None else times,
            np.array([change.diff for change in changes], np.int64),
        )


def has_all_rows(constraint: Unique, desc: RelationDesc) -> bool:
    """Whether the index of `constraint` leaves no row out because its key collides with nothing."""
    nullable = any(desc.columns[i].nullable for i in constraint.columns)
    return not (constraint.nulls_distinct and nullable)


def takes_tuples(constraint: Unique, desc: RelationDesc) -> bool:
    """Whether keys can be compared as Python data."""
    types = [desc.columns[i].type for i in constraint.columns]
    return constraint.nulls_distinct and all(map(is_plain, types))


class KeyedRows:
    """Rows on their way into a table by one of its keys."""

    __slots__ = ("_layout", "_updates", "changes")

    def __init__(self, layout: KeyLayout, rows: TableRows) -> None:
        """Hash the keys of `rows`, and sort many rows: that may take long."""
        self._layout = layout
        is_few = layout.takes_tuples and rows.num_rows <= FEW
        self.changes = layout.changes(rows) if is_few else None  # None: they are many
        self._updates = None if is_few else layout.updates(rows.table)

    def __len__(self) -> int:
        """Return how many rows have a key that can collide."""
        return len(self.updates if self.changes is None else self.changes)

    @property
    def updates(self) -> Updates:
        """The rows as updates at time 0."""
        if self._updates is None:
            assert self.changes is not None
            self._updates = self._layout.updates_of(self.changes)
        return self._updates


def changes_of(parts: Sequence[KeyedRows]) -> Sequence[Change] | None:
    """Return the rows of all `parts` one by one; None if a part has many."""
    if len(parts) == 1:
        return parts[0].changes
    found: list[Change] = []
    for part in parts:
        if part.changes is None:
            return None
        found += part.changes
    return found
