"""The newest row of each key as a tuple, which is all that a statement about one row needs.

`NewestRows` stands before an arrangement of a table's rows by a unique key. A write of few rows is
noted here and goes into the arrangement later, together with many others (`settle`). Rows that were
looked up are remembered. So each key has an *entry*, its newest row and the time when that was last
changed, or it has none and the arrangement has all of its changes:

- A change that is not in the arrangement yet has made an entry of its key.
- An entry holds at all times from its own to `upper`.

All entries are forgotten at once when they take too much memory. Keys come with their hash. Two
keys with the same hash have no entries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.row_reader import PointReader
from foreshore.compute.keys.layout import Change, KeyLayout
from foreshore.table_rows import Row
from foreshore.update import Timestamp

PENDING = 512  # changes from which on they are put into the arrangement
MOST_BYTES = 16 << 20  # of the entries of one index


class Entry(Struct, frozen=True):
    """The newest row of a key, None if there is none, and the last time at which it changed."""

    key: Row
    row: Row | None
    time: Timestamp


@dataclass(slots=True)
class Reached:
    """The time before which all changes of the tables that are written together are known."""

    upper: Timestamp = 0


class NewestRows:
    """The rows of `arrangement`, made by `layout`, in which each key is at most once."""

    def __init__(self, layout: KeyLayout, arrangement: Arrangement) -> None:
        self._layout = layout
        self._arrangement = arrangement
        self._reader = PointReader(arrangement, layout.columns)
        self._upper = arrangement.upper
        self._reached: Reached | None = None
        self._entries: dict[int, Entry] = {}
        self._pending: list[tuple[Change, Timestamp]] = []
        self.changed: Timestamp = arrangement.upper  # no row has changed after this time
        self._bytes = 0  # about as much as the entries take, those that others replaced included

    @property
    def upper(self) -> Timestamp:
        """All changes before it are in, here or in the arrangement."""
        upper = max(self._upper, self._arrangement.upper)
        return upper if self._reached is None else max(upper, self._reached.upper)

    def knows(self, time: Timestamp) -> bool:
        """Whether the upper is beyond `time`."""
        reached = self._reached
        return (
            time < self._upper
            or (reached is not None and time < reached.upper)
            or (time < self._arrangement.upper)
        )

    def follow(self, reached: Reached | None) -> None:
        """Let the upper follow `reached` from now on; None: no longer."""
        self._upper = self.upper
        self._reached = reached

    @property
    def is_due(self) -> bool:
        """Whether so much is pending that it should be settled, or nothing."""
        return not 0 < len(self._pending) < PENDING

    # --- what changes

    def apply(self, changes: Sequence[Change], time: Timestamp) -> None:
        """Make the next changes, in order, at `time`; the upper is beyond it then."""
        shared: list[int] = []
        self.changed = time
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
        """Record that nothing else changes before `upper`."""
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
        self._arrangement.insert_updates(self._layout.updates_of(changes, times), upper)

    def merged(self) -> None:
        """Let go of runs that a merge of the arrangement has replaced."""
        self._reader.forget()

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

    def duplicate(self, changes: Sequence[Change], own: Mapping[Row, Row | None]) -> Row | None:
        """Return a key that would be there twice after `changes`, one of which inserts it.

        `own` are the rows, or None, that count as there under their keys.
        """
        diffs = {changes[0].key: changes[0].diff} if len(changes) == 1 else _summed(changes)
        for change in changes:  # one row may replace another: then nothing is looked up
            if diffs[change.key] > 0 and self._count(change, own) + diffs[change.key] > 1:
                return change.key
        return None

    def overdrawn(self, changes: Sequence[Change], own: Mapping[Row, Row | None]) -> list[int]:
        """Return the hashes of keys of which `changes` delete more rows than there are."""
        over, diffs = list[int](), _summed(changes, only_deleted=True)
        for each in changes:
            if each.diff < 0 and self._count(each, own) + diffs[each.key] < 0:
                over.append(each.hash)
        return over

    def _count(self, change: Change, own: Mapping[Row, Row | None]) -> int:
        """Return how many rows have the key of a change, with `own`: 0 or 1."""
        key = change.key
        row = own[key] if key in own else self.newest(change.hash, key).row
        return 0 if row is None else 1

    def latest(self, hash: int) -> Timestamp:
        """Return a time since which no key with this hash was changed; 0 if none ever was."""
        entry = self._entries.get(hash)
        if entry is not None:
            return entry.time
        parts = self._arrangement.under(hash)
        return max((int(part.times.max()) for part in parts), default=0)

    def _load(self, hash: int, key: Row) -> tuple[Entry, bool]:
        """Return the arrangement's newest row of a key, and whether no other key has its hash."""
        updates = self._reader.under(hash)
        if not updates:
            return Entry(key, None, 0), True
        if len(updates) == 1:  # nearly always
            row, _, time, diff = updates[0]
            if diff == 1 and self._layout.key(row) == key:
                return Entry(key, row, time), True
        latest = 0
        alone = True
        counts: dict[int, int] = {}
        rows: dict[int, Row] = {}
        for row, row_hash, time, diff in updates:
            latest = max(latest, time)
            if self._layout.key(row) != key:
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
            self._bytes += 32 * len(entry.row)
            for each in entry.row:
                if not isinstance(each, int):
                    self._bytes += len(each) if isinstance(each, str | bytes | tuple) else 0


def _summed(changes: Sequence[Change], *, only_deleted: bool = False) -> dict[Row, int]:
    """Return the sum of the diffs of each key."""
    diffs: dict[Row, int] = {}
    for change in changes:
        if not only_deleted or change.diff < 0:
            diffs[change.key] = diffs.get(change.key, 0) + change.diff
    return diffs
