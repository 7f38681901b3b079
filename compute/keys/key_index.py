"""A key index: the rows of a table by a unique key, as they were last committed.

It gets what a group commit writes at the moment when that becomes visible, so it is exact at
`read_ts`, and at earlier times as far back as a read hold on the table. Rows whose key no other can
collide with are left out.

    duplicate   a key that would be there more than once after some writes
    overdrawn   keys of which some writes delete more rows than there are
    find        the rows under some keys
    look_up_by  the rows by other columns (secondary.py)
    in_order    the rows in the order of some columns (ordered.py)

Few rows are looked up as tuples (`newest`), many as columns (`arrangement`), and both have the same
rows: `settle` puts into the arrangement what only `newest` has. Callers know one form, `KeyedRows`.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from foreshore import blocking
from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.arrange.key import Words, pairs_equal
from foreshore.compute.arrange.merge import Merge
from foreshore.compute.arrange.run import Ints, Updates, concat
from foreshore.compute.keys.layout import FEW, MANY, Change, KeyedRows, KeyLayout, changes_of
from foreshore.compute.keys.look_up import LookUp
from foreshore.compute.keys.newest_rows import NewestRows
from foreshore.compute.keys.ordered import OrderedKey, OrderedView
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.keys.secondary import SecondaryKey, SecondaryView, rows_under
from foreshore.constraint import Unique
from foreshore.datum import from_array
from foreshore.ids import GlobalId
from foreshore.table_rows import Row, TableRows
from foreshore.types import Datum, RelationDesc
from foreshore.update import Timestamp

NOTHING: Mapping[Row, Row | None] = {}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that would be there more than once."""

    table: GlobalId
    constraint: Unique
    key: tuple[Datum, ...]


class KeyIndex:
    """The rows of `table`, in the columns `desc`, by the columns of a unique constraint."""

    def __init__(
        self, table: GlobalId, constraint: Unique, desc: RelationDesc, since: Timestamp
    ) -> None:
        self.layout = KeyLayout(table, constraint, desc)
        self.arrangement = self.layout.arrangement(since)
        self.newest = NewestRows(self.layout, self.arrangement)
        self._secondary: dict[tuple[int, ...], SecondaryKey] = {}
        self._ordered: dict[tuple[int, ...], OrderedKey] = {}
        self._merging: set[asyncio.Task[None]] = set()  # at most one

    @property
    def table(self) -> GlobalId:
        """The table."""
        return self.layout.table

    @property
    def constraint(self) -> Unique:
        """The unique constraint."""
        return self.layout.constraint

    def renamed(self, constraint: Unique, desc: RelationDesc) -> "KeyIndex":
        """Return the same index, which shares all rows, for the constraint by another name."""
        if self.constraint == constraint:
            return self
        other = copy(self)
        other.layout = KeyLayout(self.table, constraint, desc)
        return other

    def keyed(self, rows: TableRows) -> KeyedRows:
        """Return rows on their way into the table by the key; many may take long."""
        return KeyedRows(self.layout, rows)

    def readable(self, time: Timestamp) -> bool:
        """Whether the rows at `time` are known here."""
        return self.arrangement.since <= time and self.newest.knows(time)

    def latest(self, hashes: Sequence[int]) -> Timestamp:
        """Return a time since which no key with one of `hashes` was changed; 0 if none ever was."""
        if not hashes:
            return 0
        if len(hashes) <= FEW:
            return max([self.newest.latest(hash) for hash in hashes])
        return self.settled().latest(np.array(hashes, np.uint64))

    def settled(self) -> Arrangement:
        """Return the arrangement with all changes in it; on the event loop only."""
        self.newest.settle()
        return self.arrangement

    # --- what writes would do

    def duplicate(self, parts: Sequence[KeyedRows], own: OwnRows | None = None) -> Duplicate | None:
        """Return a key that would be there twice after `parts`, which insert it.

        Counted are the rows at the newest time, with what the transaction has written before, its
        `own`. Many rows may be counted on a thread, after the index has been settled.
        """
        changes = parts[0].changes if len(parts) == 1 else changes_of(parts)
        newest = NOTHING if own is None else own.newest
        if changes is not None and newest is not None:
            key = self.newest.duplicate(changes, newest)
            return None if key is None else Duplicate(self.table, self.constraint, key)
        return self.duplicate_of([part.updates for part in parts], own)

    def duplicate_of_changes(self, changes: Sequence[Change]) -> Duplicate | None:
        """Return what `duplicate` does, of rows one by one."""
        key = self.newest.duplicate(changes, NOTHING)
        return None if key is None else Duplicate(self.table, self.constraint, key)

    def overdrawn(self, parts: Sequence[KeyedRows], own: OwnRows | None) -> Timestamp | None:
        """Return a time since which no key has changed of which `parts` delete more than there are.

        None if there are no such keys.
        """
        changes = parts[0].changes if len(parts) == 1 else changes_of(parts)
        newest = NOTHING if own is None else own.newest
        if changes is not None and newest is not None:
            over = self.newest.overdrawn(changes, newest)
            return self.latest(over) if over else None
        hashes = self._overdrawn([part.updates for part in parts], own)
        return self.arrangement.latest(hashes) if len(hashes) else None

    def duplicate_of(
        self, parts: Sequence[Updates], own: OwnRows | None = None
    ) -> Duplicate | None:
        """Return what `duplicate` does, of rows in columns."""
        if not any((part.diffs > 0).any() for part in parts):
            return None
        places = self._places(parts, own)
        hashes, diffs = _net(parts)
        grown = diffs > 0  # one row may replace another: then nothing is looked up
        wanted, diffs = hashes[grown], diffs[grown]
        sums = np.sum([diffs, *(place.totals(wanted) for place in places)], axis=0)
        over = wanted[sums > 1]
        if not len(over):
            return None
        there = [updates for place in places for _, updates in place.find(over)]
        mine = [part.take(np.flatnonzero(np.isin(part.key_hashes, over))) for part in parts]
        return self._counted_twice(concat([*there, *mine]), sum(map(len, there)))

    def _overdrawn(self, parts: Sequence[Updates], own: OwnRows | None) -> Words:
        """Return hashes of keys of which `parts` delete more rows than there are."""
        places = self._places(parts, own)
        removed = [part.diffs < 0 for part in parts]
        hashes = [part.key_hashes[each] for part, each in zip(parts, removed, strict=True)]
        wanted, at = np.unique(np.concatenate(hashes), return_inverse=True)
        if not len(wanted):
            return np.empty(0, np.uint64)
        sums = np.sum([place.totals(wanted) for place in places], axis=0)
        diffs = [part.diffs[each] for part, each in zip(parts, removed, strict=True)]
        np.add.at(sums, at, np.concatenate(diffs))
        over: Words = wanted[sums < 0]
        return over

    def _places(self, parts: Sequence[Updates], own: OwnRows | None) -> list[Arrangement]:
        """Return where the rows are; few are counted on the event loop, so all is settled."""
        if sum(map(len, parts)) <= MANY:
            self.newest.settle()
        return [self.arrangement] if own is None else [self.arrangement, own.arrangement]

    def _counted_twice(self, updates: Updates, first: int) -> Duplicate | None:
        """Return a key whose diffs add up to more than one; hashes alone may be equal by chance.

        The key is that of the one of `updates`, from `first` on, that makes it one too many.
        """
        keys, diffs = self.layout.key_of(updates.rows), updates.diffs
        for place in first + np.flatnonzero(diffs[first:] > 0):
            equal = updates.key_hashes == updates.key_hashes[place]
            for column, type in zip(keys, self.layout.types, strict=True):
                one = column.take(pa.array(np.full(len(updates), place)))
                equal = equal & pairs_equal(column, one, type)
            at = np.flatnonzero(equal)
            sums = np.cumsum(diffs[at])
            if sums[-1] > 1:
                last = at[(sums > 1) & (at >= first) & (diffs[at] > 0)][0]
                pairs = zip(keys, self.layout.types, strict=True)
                key = tuple(from_array(c.slice(last, 1), type)[0] for c, type in pairs)
                return Duplicate(self.table, self.constraint, key)
        return None

    # --- looking up

    def find(
        self, keys: Sequence[pa.Array], time: Timestamp, own: OwnRows | None = None
    ) -> tuple[Ints, pa.RecordBatch]:
        """Return the rows at `time` under `keys`, columns of keys, with the place of each's key.

        What the transaction has written, its `own`, counts as well. Rows are in the order of the
        places.
        """
        return self.look_up(own).find(keys, time)

    def look_up(self, own: OwnRows | None = None) -> LookUp:
        """Return what looks up rows by the key, also on a thread."""
        settled = self.settled()
        return LookUp(self.layout, (settled,) if own is None else (settled, own.arrangement))

    async def prepare(
        self, columns: tuple[int, ...], own: OwnRows | None, executor: Executor
    ) -> None:
        """Hash rows by other columns, as far as that may take long."""
        secondary = self._secondary_by(columns)
        await secondary.prepare(executor)
        if own is not None:
            await own.secondary(secondary.layout).prepare(executor)

    def look_up_by(self, columns: tuple[int, ...], own: OwnRows | None = None) -> LookUp | None:
        """Return what looks up rows by other columns; None if they have to be prepared."""
        secondary = self._secondary_by(columns)
        self.newest.settle()
        views = [secondary.view()]
        if own is not None:
            views.append(own.secondary(secondary.layout).view())
        found = tuple(view for view in views if view is not None)
        return LookUp(secondary.layout, found) if len(found) == len(views) else None

    def rows_by(
        self, columns: tuple[int, ...], used: Collection[int], own: OwnRows | None = None
    ) -> Callable[[Sequence[Row], Timestamp], tuple[int, Iterator[Row]]] | None:
        """Return what finds the rows of a time under keys of other columns, one by one.

        They have the columns that are `used`. With them it returns about how many there are. None
        if rows have to be prepared.
        """
        found = self.look_up_by(columns, own)
        if found is None:
            return None
        views = cast("Sequence[SecondaryView]", found.sources)
        newest = NOTHING if own is None else own.newest
        is_known = newest is not None and self.layout.takes_tuples
        current = partial(self._current, newest or NOTHING) if is_known else None
        return partial(rows_under, views, found.layout, used, current)

    def _current(
        self, own: Mapping[Row, Row | None], row: Row, time: Timestamp
    ) -> tuple[Row, Row | None]:
        """Return the key of a row, and the row that has it at `time`, with a transaction's own.

        Raises TooManyRows if it has changed since.
        """
        key = self.layout.key(row)
        assert key is not None, self.constraint
        if key in own:
            return key, own[key]
        entry = self.newest.newest(self.layout.hash(key), key)
        if entry.time > time:
            raise TooManyRows
        return key, entry.row

    async def prepare_order(self, columns: tuple[int, ...], executor: Executor) -> None:
        """Sort rows by some columns, as far as that may take long."""
        await self._ordered_by(columns).prepare(executor)

    def in_order(self, columns: tuple[int, ...], own: OwnRows | None) -> OrderedView | None:
        """Return the rows in the order of some columns; None if they have to be prepared."""
        ordered = self._ordered_by(columns)
        self.newest.settle()
        return ordered.view(None if own is None else own.arrangement)

    def layout_by(self, columns: tuple[int, ...]) -> KeyLayout:
        """Return the layout of the rows by other columns."""
        return self._secondary_by(columns).layout

    def changed_by(self, columns: tuple[int, ...], hashes: Words, time: Timestamp) -> bool:
        """Whether a row in which other columns have one of `hashes` changed after `time`.

        If it is not known, as rows have to be prepared, it is True.
        """
        found = self.look_up_by(columns)
        return found is None or found.latest(hashes) > time

    def _secondary_by(self, columns: tuple[int, ...]) -> SecondaryKey:
        found = self._secondary.get(columns)
        if found is None:
            layout = self.layout.by(columns)
            found = self._secondary[columns] = SecondaryKey(layout, self.arrangement)
        return found

    def _ordered_by(self, columns: tuple[int, ...]) -> OrderedKey:
        found = self._ordered.get(columns)
        if found is None:
            layout = self.layout.by(columns)
            found = self._ordered[columns] = OrderedKey(layout, self.arrangement)
        return found

    # --- following

    def fill(self, updates: Updates, time: Timestamp) -> None:
        """Insert all rows of the table at `time` into the empty index."""
        self.newest.changed = time
        self.arrangement.insert_prepared([updates], time, time + 1)
        self.newest.advance(time + 1)

    def insert(self, parts: Sequence[KeyedRows], time: Timestamp) -> None:
        """Make the writes of `parts`, in this order, at `time`."""
        if not parts:
            self.newest.advance(time + 1)
            return
        changes = parts[0].changes if len(parts) == 1 else changes_of(parts)
        if changes is not None:
            self.newest.apply(changes, time)
        else:
            updates = [part.updates for part in parts]
            hashes = np.concatenate([part.key_hashes for part in updates])
            self.newest.changed = time
            self.newest.forget(hashes.tolist() if len(hashes) <= MANY else None)
            self.arrangement.insert_prepared(updates, time, time + 1)
            self.newest.advance(time + 1)

    def maintain(self, executor: ThreadPoolExecutor) -> None:
        """Let a merge that is due be done, on a thread, if none is under way."""
        if self._merging:
            return
        merge = self.arrangement.next_merge()
        if merge is not None:
            task = asyncio.get_running_loop().create_task(self._merge(executor, merge))
            self._merging.add(task)
            task.add_done_callback(self._merging.discard)

    async def _merge(self, executor: ThreadPoolExecutor, merge: Merge) -> None:
        run = await blocking.run(executor, merge.result)
        hashed = [(each, await each.made(run, executor)) for each in [*self._secondary.values()]]
        ordered = [(each, await each.made(run, executor)) for each in [*self._ordered.values()]]
        self.arrangement.install(merge, run)
        self.newest.merged()
        for secondary, by_hash in hashed:
            secondary.add(by_hash)
        for key, in_order in ordered:
            key.add(in_order)


def _net(parts: Sequence[Updates]) -> tuple[Words, Ints]:
    """Return the hashes of the keys of updates, each once, and what the diffs of each add up to."""
    hashes = np.concatenate([part.key_hashes for part in parts])
    order = np.argsort(hashes, kind="stable")
    hashes, diffs = hashes[order], np.concatenate([part.diffs for part in parts])[order]
    first = np.ones(len(hashes), np.bool_)
    first[1:] = hashes[1:] != hashes[:-1]
    starts = np.flatnonzero(first)
    return hashes[starts], np.add.reduceat(diffs, starts) if len(starts) else diffs
