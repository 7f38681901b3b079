"""The newest row of each key as a tuple: what a statement about one row asks, without columns.

`NewestRows` stands before an arrangement of a table's rows by a unique key. What few rows change is
noted here and put into the arrangement later, many at a time (`settle`); what was looked up is
remembered. So each key has an *entry*, its newest row and when that was last changed, or it has
none and the arrangement knows all of it:

- A change that the arrangement does not have yet has made an entry of its key.
- An entry says what holds at all times from its own to `upper`.

Everything is forgotten at once when it takes too much memory. Keys are data whose equality in
Python is SQL's (`PLAIN`), and come with their hash, which two keys may share: then neither has an
entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from foreshore.adapter.write.values import Row, columns_of_rows
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.arrange.run import Updates
from foreshore.expr.datum import from_array
from foreshore.types import ColumnType
from foreshore.update import Timestamp

PENDING = 512  # changes, from which on they are put into the arrangement
MOST_BYTES = 16 << 20  # of what is remembered of one key

# Types whose data are equal in Python where their values are in SQL.
PLAIN = frozenset(
    "bool int2 int4 int8 oid mz_timestamp date time timestamp timestamptz"
    " text varchar bpchar name bytea uuid".split()
)


class Change(NamedTuple):
    """One row that comes (diff 1) or goes (-1), by its key."""

    hash: int
    key: Row
    row: Row
    diff: int


class Entry(NamedTuple):
    """The newest row of a key, None if there is none, and the last time at which it changed."""

    key: Row
    row: Row | None
    time: Timestamp


@dataclass(slots=True)
class Reached:
    """Up to where all tables that are written together have changed, or not changed."""

    upper: Timestamp = 0


class NewestRows:
    """The rows of `arrangement`, whose key is its columns `key`, of which each is there once."""

    def __init__(
        self, arrangement: Arrangement, columns: Sequence[ColumnType], key: Sequence[int]
    ) -> None:
        self._arrangement = arrangement
        self._columns = columns
        self._key = tuple(key)
        self._upper = arrangement.upper
        self._reached: Reached | None = None
        self._entries: dict[int, Entry] = {}
        self._pending: list[tuple[Change, Timestamp]] = []
        self._bytes = 0  # about as much as the entries take, those that others replaced included

    @property
    def upper(self) -> Timestamp:
        """All changes before it are in, here or in the arrangement."""
        upper = max(self._upper, self._arrangement.upper)
        return upper if self._reached is None else max(upper, self._reached.upper)

    def follow(self, reached: Reached | None) -> None:
        """Hear of all changes before they are `reached`, from now on; None: no longer."""
        self._upper = self.upper
        self._reached = reached

    @property
    def is_settled(self) -> bool:
        """Whether the arrangement has all changes."""
        return not self._pending

    @property
    def is_due(self) -> bool:
        """Whether so much is pending that it should be settled."""
        return len(self._pending) >= PENDING

    # --- what changes

    def apply(self, changes: Sequence[Change], time: Timestamp) -> None:
        """Take the next changes, in order, at `time`; the upper is beyond it then."""
        shared: list[int] = []
        for change in changes:
            self._pending.append((change, time))
            known = self._entries.get(change.hash)
            if known is not None and known.key != change.key:
                shared.append(change.hash)
            row = change.row if change.diff > 0 else None
            self._remember(change.hash, Entry(change.key, row, time))
        self.advance(time + 1)
        if shared:
            self.settle()
            for hash in shared:
                self._entries.pop(hash, None)
        if self._bytes > MOST_BYTES:
            self.forget()

    def advance(self, upper: Timestamp) -> None:
        """Take note that nothing else changes before `upper`."""
        assert upper >= self._upper, (self._arrangement.name, upper, self._upper)
        self._upper = upper

    def settle(self) -> None:
        """Put all that is pending into the arrangement; only where that may be changed."""
        upper = self.upper
        if not self._pending:
            if self._arrangement.upper < upper:
                self._arrangement.advance(upper)
            return
        pending, self._pending = self._pending, []
        changes = [change for change, _ in pending]
        times = np.array([time for _, time in pending], np.int64)
        self._arrangement.insert_updates(self.updates_of(changes, times), upper)

    def updates_of(self, changes: Sequence[Change], times: np.ndarray) -> Updates:
        """Return changes, one or more, at `times`, as the arrangement's updates."""
        columns = columns_of_rows([change.row for change in changes], self._columns)
        return Updates(
            pa.RecordBatch.from_arrays(columns, schema=self._arrangement.schema),
            np.array([change.hash for change in changes], np.uint64),
            hash_columns(columns, None, len(changes)),
            times,
            np.array([change.diff for change in changes], np.int64),
        )

    def forget(self, hashes: Sequence[int] | None = None) -> None:
        """Forget the entries of these keys, or all; what is pending is settled before."""
        self.settle()
        if hashes is not None:
            for hash in hashes:
                self._entries.pop(hash, None)
            return
        self._entries.clear()
        self._bytes = 0

    # --- what is asked

    def newest(self, hash: int, key: Row) -> Entry:
        """Return the newest row of a key, and a time since which it has not changed."""
        entry = self._entries.get(hash)
        if entry is not None:
            if entry.key == key:
                return entry
            self.settle()
        entry, alone = self._load(hash, key)
        if alone and hash not in self._entries:
            self._remember(hash, entry)
            if self._bytes > MOST_BYTES:
                self.forget()
        return entry

    def taken(self, changes: Sequence[Change], own: Mapping[Row, Row | None]) -> Row | None:
        """Return a key that would be there twice after `changes`, one of which brings it.

        `own` are rows that count as there under their keys, whatever is there else.
        """
        counts: dict[Row, int] = {}
        for change in changes:
            counts[change.key] = counts.get(change.key, 0) + change.diff
        for change in changes:
            key = change.key
            if counts[key] > 0:  # else a row takes the place of another
                row = own[key] if key in own else self.newest(change.hash, key).row
                if (row is not None) + counts[key] > 1:
                    return key
        return None

    def latest(self, hash: int) -> Timestamp:
        """Return a time since which no key with this hash was changed; 0 if none ever was."""
        entry = self._entries.get(hash)
        if entry is not None:
            return entry.time
        parts = self._arrangement.under(hash)
        return max((int(part.times.max()) for part in parts), default=0)

    def _load(self, hash: int, key: Row) -> tuple[Entry, bool]:
        """Return what the arrangement knows of a key, and whether no other has its hash."""
        latest = 0
        alone = True
        counts: dict[int, int] = {}
        rows: dict[int, Row] = {}
        for part in self._arrangement.under(hash):
            latest = max(latest, int(part.times.max()))
            columns = [
                from_array(column, each.type)
                for column, each in zip(part.rows.columns, self._columns, strict=True)
            ]
            for row, row_hash, diff in zip(
                zip(*columns, strict=True),
                part.row_hashes.tolist(),
                part.diffs.tolist(),
                strict=True,
            ):
                if tuple([row[i] for i in self._key]) != key:
                    alone = False
                    continue
                rows[row_hash] = row
                counts[row_hash] = counts.get(row_hash, 0) + diff
        there = [rows[row_hash] for row_hash, count in counts.items() if count > 0]
        assert len(there) <= 1, (self._arrangement.name, "a key is there twice")
        return Entry(key, there[0] if there else None, latest), alone

    def _remember(self, hash: int, entry: Entry) -> None:
        self._entries[hash] = entry
        self._bytes += 200
        if entry.row is not None:
            self._bytes += sum(
                [
                    32 if not isinstance(each, str | bytes | tuple) else 32 + len(each)
                    for each in entry.row
                ]
            )
