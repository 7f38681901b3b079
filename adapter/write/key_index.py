"""Key indexes: the rows of a table by a unique key, in this process, as they were last committed.

Each unique constraint has an arrangement of its table's rows by its columns. It gets what a group
commit writes at the moment when that becomes visible, so it is exact at `read_ts`; and at earlier
times, as far back as somebody holds the table. It is built from a snapshot at the start, and when
the constraint is added; rows whose key nobody can collide with, as a NULL is in it, are left out.

    duplicate   a key that would be there more than once, if some more updates were made
    find        the rows under some keys
    row         the row under one key, as a tuple

What is about one row or a few goes by tuples (`adapter/write/newest_rows.py`), what is about many
by columns. Both ways lead to the same rows: whoever looks at the arrangement settles it first.

A statement asks for duplicates with what its transaction has written before, and group commit asks
again with what comes before it in the group (`KeyIndexes.refused`). Sorting, hashing and looking up
much is for other threads; merging happens on one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.write.newest_rows import Change, NewestRows, Reached
from foreshore.adapter.write.values import Row, Values
from foreshore.compute.arrange.arrangement import TAIL_ROWS, Arrangement
from foreshore.compute.arrange.key import Words, hash_columns, hash_words, key_words, pairs_equal
from foreshore.compute.arrange.merge import Merge
from foreshore.compute.arrange.run import Ints, Run, Updates, concat
from foreshore.constraint import Unique, same
from foreshore.errors import CollectionCorrupted, DatabaseError, Fenced
from foreshore.expr.datum import from_array
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.storage.corruption import Corruptions
from foreshore.types import Datum, RelationDesc, arrow_type
from foreshore.update import DIFF_FIELD, Timestamp

logger = logging.getLogger(__name__)

FEW = 64
MANY = TAIL_ROWS  # rows from which on work on them is not for the event loop


@dataclass(slots=True)
class Changes:
    """Few rows on their way into a table, one by one; those with a key that is NULL left out."""

    changes: list[Change]
    _updates: Updates | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.changes)

    def updates(self, index: "KeyIndex") -> Updates:
        """Return them as columns, in the same order, for the index of their key."""
        if self._updates is None:
            self._updates = index.updates_of(self.changes)
        return self._updates


# Rows on their way into a table, for each of its unique constraints.
Keyed = Mapping[str, Updates | Changes]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that would be there more than once."""

    table: GlobalId
    constraint: Unique
    key: tuple[Datum, ...]


class KeyIndex:
    """The rows of `table`, of columns `desc`, by the columns of one unique constraint."""

    def __init__(
        self, table: GlobalId, constraint: Unique, desc: RelationDesc, since: Timestamp
    ) -> None:
        self.table = table
        self.constraint = constraint
        self._types = [desc.columns[i].type for i in constraint.columns]
        self._schema = pa.schema(
            [pa.field(f"c{i}", arrow_type(each.type)) for i, each in enumerate(desc.columns)]
        )
        self._drops_nulls = constraint.nulls_distinct
        self.arrangement = Arrangement(
            f"{table}.{constraint.name}", self._schema, self._types, self.key_of, since
        )
        self.newest = NewestRows(self.arrangement, desc.columns, constraint.columns)
        self._merging: set[asyncio.Task[None]] = set()  # at most one; of all who share it

    def called(self, constraint: Unique) -> "KeyIndex":
        """Return the same index for the constraint by another name; they share what they know."""
        if self.constraint == constraint:
            return self
        other = copy(self)
        other.constraint = constraint
        return other

    def key_of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the key."""
        return [rows.column(i) for i in self.constraint.columns]

    def prepare(self, rows: pa.Table) -> Updates:
        """Return rows with `__diff` as updates to be made at some time; may take long."""
        columns, diffs = split_diffs(rows)
        if self._drops_nulls and any(columns[i].null_count for i in self.constraint.columns):
            kept = None
            for i in self.constraint.columns:
                valid = columns[i].is_valid()
                kept = valid if kept is None else pc.and_(kept, valid)
            columns, diffs = [column.filter(kept) for column in columns], diffs.filter(kept)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return self.arrangement.prepare(batch, diffs)

    def hashes_of(self, keys: Sequence[pa.Array]) -> list[int]:
        """Return the hashes of keys, given as columns."""
        return list(hash_columns(keys, self._types, len(keys[0])).tolist())

    def hashes(self, rows: pa.RecordBatch) -> Words:
        """Return a hash of each row's key; keys that collide with nothing have one of their own."""
        keys = self.key_of(rows)
        hashes = hash_columns(keys, self._types, rows.num_rows)
        if self._drops_nulls and any(key.null_count for key in keys):
            lone = np.zeros(rows.num_rows, np.bool_)
            for key in keys:
                lone |= key.is_null().to_numpy(zero_copy_only=False)
            places = np.flatnonzero(lone)
            hashes[places] = places  # as likely to meet another as any two hashes are
        return hashes

    def readable(self, time: Timestamp) -> bool:
        """Whether the rows at `time` are known here."""
        return self.arrangement.since <= time < self.newest.upper

    # --- one by one, if the key's columns are of PLAIN types and NULLs in them are distinct

    def key(self, row: Row) -> Row | None:
        """Return the key of a row; None if a part of it is NULL."""
        key = tuple([row[i] for i in self.constraint.columns])
        return None if None in key else key

    def hash(self, key: Row) -> int:
        """Return the hash of a key, in which nothing is NULL."""
        words = key_words(key, self._types)
        assert words is not None, key
        return hash_words(words)

    def changes(self, values: Values) -> Changes:
        """Return rows on their way into the table by their keys."""
        found = []
        for row, diff in zip(values.rows, values.diffs, strict=True):
            key = self.key(row)
            if key is not None:
                found.append(Change(self.hash(key), key, row, diff))
        return Changes(found)

    def updates_of(self, changes: Sequence[Change]) -> Updates:
        """Return changes as updates to be made at some time."""
        if not changes:
            return self.prepare(self._schema.append(DIFF_FIELD).empty_table())
        return self.newest.updates_of(changes, np.zeros(len(changes), np.int64))

    def latest(self, hashes: Sequence[int]) -> Timestamp:
        """Return a time since which no key with one of `hashes` was changed; 0 if none ever was."""
        if len(hashes) <= FEW:
            return max([self.newest.latest(hash) for hash in hashes])
        return self.settled().arrangement.latest(np.array(hashes, np.uint64))

    def settled(self) -> "KeyIndex":
        """Return the index with all that it knows in its arrangement."""
        self.newest.settle()
        return self

    # --- looking up

    def duplicate(self, parts: Sequence[Updates], *others: Arrangement) -> Duplicate | None:
        """Return a key that would be there twice after `parts`, which inserts it.

        Counted is what is there at the newest time, here and in `others`; what is not settled is
        left out, as this may run on a thread.
        """
        inserted = [part.key_hashes[part.diffs > 0] for part in parts]
        wanted = np.unique(np.concatenate(inserted)) if inserted else np.empty(0, np.uint64)
        if not len(wanted):
            return None
        places = (self.arrangement, *others)
        sums = np.sum([place.totals(wanted) for place in places], axis=0)
        hashes = np.concatenate([part.key_hashes for part in parts])
        diffs = np.concatenate([part.diffs for part in parts])
        at = np.minimum(wanted.searchsorted(hashes), len(wanted) - 1)
        same = wanted[at] == hashes
        np.add.at(sums, at[same], diffs[same])
        over = wanted[sums > 1]
        if not len(over):
            return None
        there = [updates for place in places for _, updates in place.find(over)]
        mine = [part.take(np.flatnonzero(np.isin(part.key_hashes, over))) for part in parts]
        return self._counted_twice(concat([*there, *mine]), sum(map(len, there)))

    def overdrawn(self, parts: Sequence[Updates], *others: Arrangement) -> Words:
        """Return hashes of keys of which `parts` take away more rows than there are.

        Counted is as for `duplicate`.
        """
        removed = [part.diffs < 0 for part in parts]
        hashes = [part.key_hashes[each] for part, each in zip(parts, removed, strict=True)]
        wanted, at = np.unique(np.concatenate(hashes), return_inverse=True)
        if not len(wanted):
            return np.empty(0, np.uint64)
        sums = np.sum([place.totals(wanted) for place in (self.arrangement, *others)], axis=0)
        diffs = [part.diffs[each] for part, each in zip(parts, removed, strict=True)]
        np.add.at(sums, at, np.concatenate(diffs))
        over: Words = wanted[sums < 0]
        return over

    def _counted_twice(self, updates: Updates, first: int) -> Duplicate | None:
        """Return a key whose diffs add up to more than one; hashes alone may be equal by chance.

        It is as the one of `updates`, of those from `first` on, has it that makes it one too many.
        """
        keys, diffs = self.key_of(updates.rows), updates.diffs
        for place in first + np.flatnonzero(diffs[first:] > 0):
            equal = updates.key_hashes == updates.key_hashes[place]
            for column, type in zip(keys, self._types, strict=True):
                one = column.take(pa.array(np.full(len(updates), place)))
                equal = equal & pairs_equal(column, one, type)
            at = np.flatnonzero(equal)
            sums = np.cumsum(diffs[at])
            if sums[-1] > 1:
                last = at[(sums > 1) & (at >= first) & (diffs[at] > 0)][0]
                pairs = zip(keys, self._types, strict=True)
                key = tuple(from_array(c.slice(last, 1), type)[0] for c, type in pairs)
                return Duplicate(self.table, self.constraint, key)
        return None

    def find(
        self, keys: Sequence[pa.Array], time: Timestamp, *others: Arrangement
    ) -> tuple[Ints, pa.RecordBatch]:
        """Return the rows at `time` under `keys`, columns of keys, with the place of each's key.

        All of `others` counts as well. Rows are in the order of the places.
        """
        self.newest.settle()
        rows = len(keys[0])
        hashes = hash_columns(keys, self._types, rows)
        found = []
        for places, updates in self.arrangement.find(hashes):
            past = np.flatnonzero(updates.times <= time)
            found.append((places[past], updates.take(past)))
        found += [pair for other in others for pair in other.find(hashes)]
        found = [pair for pair in found if len(pair[0])]
        if not found:
            return np.empty(0, np.int64), pa.RecordBatch.from_arrays(
                [pa.array([], field.type) for field in self._schema], schema=self._schema
            )
        places = np.concatenate([each for each, _ in found])
        updates = concat([each for _, each in found])
        same = np.ones(len(places), np.bool_)
        for sought, column, type in zip(keys, self.key_of(updates.rows), self._types, strict=True):
            same &= pairs_equal(column, sought.take(pa.array(places)), type)
        order = np.flatnonzero(same)
        order = order[np.lexsort((updates.row_hashes[order], places[order]))]
        places, row_hashes = places[order], updates.row_hashes[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (places[1:] != places[:-1]) | (row_hashes[1:] != row_hashes[:-1])
        starts = np.flatnonzero(first)
        sums = np.add.reduceat(updates.diffs[order], starts) if len(starts) else starts
        there = np.repeat(starts, np.maximum(sums, 0))
        return places[there], updates.rows.take(pa.array(order[there]))

    # --- following

    def insert(self, parts: Sequence[Updates | Changes], time: Timestamp) -> None:
        """Take what was written at `time`, in this order."""
        if not parts:
            self.newest.advance(time + 1)
        elif (changes := _changes(parts)) is not None:
            self.newest.apply(changes, time)
        else:
            updates = [_as_updates(self, part) for part in parts]
            hashes = np.concatenate([part.key_hashes for part in updates])
            self.newest.forget(hashes.tolist() if len(hashes) <= FEW else None)
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
        self.arrangement.install(merge, await blocking.run(executor, partial(_merged, merge)))


def _changes(parts: Sequence[Updates | Changes]) -> list[Change] | None:
    """Return what `parts` change, one by one, if none of them came as columns."""
    found: list[Change] = []
    for part in parts:
        if not isinstance(part, Changes):
            return None
        found += part.changes
    return found


def _as_updates(index: KeyIndex, part: Updates | Changes) -> Updates:
    return part.updates(index) if isinstance(part, Changes) else part


def _merged(merge: Merge) -> Run:
    while True:
        run = merge.work(1 << 20)
        if run is not None:
            return run


class KeyIndexes:
    """The key indexes of all tables; owned by the event loop.

    `floor` tells the least time at which somebody may still read a table. Of one that is among the
    `corruptions` the keys are not there.
    """

    def __init__(self, floor: Callable[[GlobalId], Timestamp], corruptions: Corruptions) -> None:
        self._floor = floor
        self._corruptions = corruptions
        self._indexes: dict[GlobalId, dict[str, KeyIndex]] = {}
        self._reached = Reached()  # what nobody writes goes on with it
        self._building: dict[GlobalId, asyncio.Future[None]] = {}
        self.executor = ThreadPoolExecutor(1, "keys")

    def of(self, table: GlobalId) -> Mapping[str, KeyIndex]:
        """Return the indexes of a table by their constraints' names."""
        return self._indexes.get(table, {})

    def named(self, table: GlobalId, constraint: Unique) -> KeyIndex | None:
        """Return the index of `constraint`; None if its name is nobody's, or means another now."""
        index = self.of(table).get(constraint.name)
        return index if index is not None and same(index.constraint, constraint) else None

    def replace(self, table: GlobalId, indexes: Mapping[str, KeyIndex]) -> None:
        """Let `indexes`, by their constraints' names, be those of a table from now on.

        They know all that has been committed.
        """
        for index in self.of(table).values():
            index.newest.follow(None)
        for index in indexes.values():
            index.newest.follow(self._reached)
        if indexes:
            self._indexes[table] = dict(indexes)
        else:
            self._indexes.pop(table, None)

    def build(
        self,
        indexes: Sequence[KeyIndex],
        rows: Callable[[], Awaitable[pa.Table]],
        read_ts: Callable[[], Timestamp],
    ) -> Coroutine[None, None, None]:
        """Return what fills the new indexes of one table with all its `rows`, at their since.

        `rows` have `__diff`. From now on statements that need the keys wait (`ready`), so that
        nothing is written to the table meanwhile.
        """
        done = self._building[indexes[0].table] = asyncio.get_running_loop().create_future()
        return self._build(indexes, rows, read_ts, done)

    async def _build(
        self,
        indexes: Sequence[KeyIndex],
        rows: Callable[[], Awaitable[pa.Table]],
        read_ts: Callable[[], Timestamp],
        done: asyncio.Future[None],
    ) -> None:
        table, since = indexes[0].table, indexes[0].arrangement.since

        def prepared(found: pa.Table) -> list[Updates]:
            return [index.prepare(found) for index in indexes]

        try:
            bind_peek = await blocking.run(self.executor, prepared, await rows())
        except (CollectionCorrupted, Fenced) as error:
            done.set_exception(error)
            done.exception()  # it is heard by those who need the keys
            return
        except BaseException as error:
            logger.exception("the keys of a table could not be read", extra={"table": table})
            done.set_exception(
                DatabaseError(f"the keys of table {table} could not be read: {error}")
            )
            done.exception()  # it is heard by those who need the keys
            raise
        for index, updates in zip(indexes, bind_peek, strict=True):
            index.insert([updates], since)
            index.newest.advance(read_ts() + 1)
        self.replace(table, {index.constraint.name: index for index in indexes})
        del self._building[table]
        done.set_result(None)

    async def ready(self, table: GlobalId) -> None:
        """Wait until the table's indexes are built; raises CollectionCorrupted if it is damaged."""
        self._corruptions.check(table)
        building = self._building.get(table)
        if building is not None:
            await asyncio.shield(building)

    # --- group commit

    def duplicate(
        self, keyed: Mapping[GlobalId, Sequence[Keyed]], checked: Timestamp, earlier: "Earlier"
    ) -> Duplicate | None:
        """Return a key that would be there twice after what `keyed` and `earlier` write.

        `keyed` by itself was checked against what was there at `checked`.
        """
        for table, parts in keyed.items():
            for name, index in self.of(table).items():
                mine = [part[name] for part in parts]
                changes = _changes(mine)
                if changes is not None and earlier.are_few(table, name, changes):
                    key = index.newest.taken(earlier.after(table, name, changes), {})
                    if key is not None:
                        return Duplicate(table, index.constraint, key)
                    continue
                found = self._duplicate(index, mine, checked, earlier)
                if found is not None:
                    return found
        return None

    @staticmethod
    def _duplicate(
        index: KeyIndex, parts: Sequence[Updates | Changes], checked: Timestamp, earlier: "Earlier"
    ) -> Duplicate | None:
        mine = [_as_updates(index, part) for part in parts]
        before = earlier.touching(index, mine)
        arrangement = index.settled().arrangement
        if sum(map(len, mine)) > MANY:
            changed = [arrangement.changed_since(checked)]
            changed += [part.key_hashes for part in before]
            mine = _with_hashes(mine, np.concatenate(changed))
        return index.duplicate([*mine, *before])

    def changed(
        self,
        keys: Iterable[tuple[GlobalId, str, int]],
        time: Timestamp,
        earlier: "Earlier | None" = None,
    ) -> bool:
        """Whether one of `keys` has been changed after `time`, or is by `earlier`.

        Each is a table, the name of a unique constraint, and a hash by it.
        """
        by_index: dict[tuple[GlobalId, str], list[int]] = {}
        for table, name, hash in keys:
            by_index.setdefault((table, name), []).append(hash)
        for (table, name), hashes in by_index.items():
            index = self.of(table).get(name)
            if index is None or index.latest(hashes) > time:
                return True
            if earlier is not None and earlier.has(table, name, hashes):
                return True
        return False

    def apply(self, time: Timestamp, keyed: Mapping[GlobalId, Sequence[Keyed]]) -> None:
        """Take what a group has written at `time`; tables that it did not write go on."""
        for table, parts in keyed.items():
            indexes = self.of(table)
            # constraints that say the same may share what they know: it takes each row once
            for name, index in {i.arrangement: (n, i) for n, i in indexes.items()}.values():
                index.insert([part[name] for part in parts], time)
                if parts and (index.newest.is_due or index.newest.is_settled):
                    index.arrangement.compact(min(self._floor(table), time))
                    index.settled().maintain(self.executor)
        self._reached.upper = time + 1

    def check(self, read_ts: Timestamp) -> None:
        """Assert that all are readable at `read_ts` and in order."""
        for indexes in self._indexes.values():
            for index in indexes.values():
                assert index.readable(read_ts), (index.table, index.constraint, read_ts)

    def close(self) -> None:
        """End the thread."""
        self.executor.shutdown(wait=False, cancel_futures=True)


class Earlier:
    """What is in a group so far, by key."""

    def __init__(self) -> None:
        self._changes: dict[tuple[GlobalId, str, int], list[Change]] = {}
        self._few: dict[tuple[GlobalId, str, int], list[Updates]] = {}
        self._many: dict[tuple[GlobalId, str], list[Updates]] = {}

    def add(self, keyed: Mapping[GlobalId, Sequence[Keyed]]) -> None:
        """Take what one more write of the group writes."""
        for table, parts in keyed.items():
            for name, updates in (pair for part in parts for pair in part.items()):
                if isinstance(updates, Changes):
                    for change in updates.changes:
                        key = (table, name, change.hash)
                        self._changes.setdefault(key, []).append(change)
                    continue
                if len(updates) > FEW:
                    self._many.setdefault((table, name), []).append(updates)
                    continue
                for place, hash in enumerate(updates.key_hashes.tolist()):
                    one = updates if len(updates) == 1 else updates.slice(place, place + 1)
                    self._few.setdefault((table, name, hash), []).append(one)

    def has(self, table: GlobalId, name: str, hashes: Sequence[int]) -> bool:
        """Whether one of these keys has been written."""
        if self._changes or self._few:
            for hash in hashes:
                key = (table, name, hash)
                if key in self._changes or key in self._few:
                    return True
        words = np.array(hashes, np.uint64)
        return any(
            np.isin(words, many.key_hashes).any() for many in self._many.get((table, name), ())
        )

    def are_few(self, table: GlobalId, name: str, changes: Sequence[Change]) -> bool:
        """Whether what was written to the keys of `changes` has come one by one, too."""
        return (table, name) not in self._many and not (
            self._few and any((table, name, each.hash) in self._few for each in changes)
        )

    def after(self, table: GlobalId, name: str, changes: Sequence[Change]) -> list[Change]:
        """Return what was written one by one to the keys of `changes`, and then these."""
        before: list[Change] = []
        if self._changes:
            for hash in dict.fromkeys([each.hash for each in changes]):
                before += self._changes.get((table, name, hash), ())
        return [*before, *changes]

    def touching(self, index: KeyIndex, mine: Sequence[Updates]) -> list[Updates]:
        """Return what was written before to keys of which `mine` may write one."""
        table, name = index.table, index.constraint.name
        many = self._many.get((table, name))
        before = [] if many is None else _with_hashes(many, _hashes(mine))
        if not self._few and not self._changes:
            return before
        if sum(map(len, mine)) <= len(self._few) + len(self._changes):
            keys = [(table, name, hash) for hash in dict.fromkeys(_hashes(mine).tolist())]
            few = [part for key in keys for part in self._few.get(key, ())]
            changes = [each for key in keys for each in self._changes.get(key, ())]
        else:
            few = [
                part
                for key, parts in self._few.items()
                if key[:2] == (table, name)
                for part in parts
            ]
            few = _with_hashes(few, _hashes(mine))
            changes = [
                each
                for key, found in self._changes.items()
                if key[:2] == (table, name)
                for each in found
            ]
        if changes:
            few += _with_hashes([index.updates_of(changes)], _hashes(mine))
        return [*before, *few]


def _hashes(parts: Sequence[Updates]) -> Words:
    return np.concatenate([part.key_hashes for part in parts])


def _with_hashes(parts: Sequence[Updates], hashes: Words) -> list[Updates]:
    """Return those of the updates whose key has one of `hashes`."""
    found = []
    for part in parts:
        places = np.flatnonzero(np.isin(part.key_hashes, hashes))
        if len(places):
            found.append(part.take(places))
    return found
