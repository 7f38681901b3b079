"""Arrangements: a changing collection indexed by key, readable from `since` to `upper`.

    insert     the updates of the next window; small ones gather in an unsorted tail
    look_up    the rows of some keys at a time
    scan       all rows at a time
    compact    forget the times before a new since

An arrangement is a list of runs, newest first, whose sizes grow geometrically
(`foreshore.compute.arrange.run`), and a tail. One thread inserts and maintains; any number of
threads read. Readers work on the state at the time they began, which is immutable. Hashing and
sorting rows whose time is not known yet (`prepare`), and the work of a merge between `next_merge`
and `install`, may be done by other threads.

A row's multiplicity at a time is never negative. If it is, a maintained plan is wrong, and the read
raises InternalError with the collection's name.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.key import (
    Words,
    hash_columns,
    hash_words,
    key_words,
    keys_equal,
    pairs_equal,
)
from foreshore.compute.arrange.merge import Merge
from foreshore.compute.arrange.run import Ints, Run, Updates, concat, sort_and_consolidate
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.span import Span
from foreshore.datum import to_array
from foreshore.errors import InternalError, ObjectNotInPrerequisiteState
from foreshore.types import Datum, SqlType
from foreshore.update import Timestamp, update_schema

TAIL_ROWS = 2048
TAIL_PARTS = 64
MERGE_BUDGET = 65_536
FEW_KEYS = 8  # keys up to which each is looked up by itself
MANY_HASHES = 1000  # hashes from which on they are looked up in order

Key = tuple[Datum, ...]
KeyColumns = Callable[[pa.RecordBatch], list[pa.Array]]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """An immutable state, which is all that a reader needs."""

    runs: tuple[Run, ...]  # newest first
    tail: tuple[Updates, ...]  # oldest first, later than all runs
    tail_hashes: Any  # the key hashes of the whole tail
    upper: Timestamp


class TooManyRows(Exception):
    """A read would examine more rows than allowed."""


class Arrangement:
    """The arrangement of collection `name` by a key.

    `key_columns` computes the key columns of rows, of types `key_types`. `schema` is that of rows.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        key_types: Sequence[SqlType],
        key_columns: KeyColumns,
        since: Timestamp,
    ) -> None:
        self.name = name
        self.schema = schema
        self.since = since
        self._key_types = tuple(key_types)
        self._key_columns = key_columns
        self._direct = all(type.name in _DIRECT for type in key_types)
        self._merge: Merge | None = None
        self._state = State((), (), np.empty(0, np.uint64), since)

    # --- the inserting thread

    @property
    def upper(self) -> Timestamp:
        """Return the time before which all updates are inserted."""
        return self._state.upper

    @property
    def rows(self) -> int:
        """Return the number of updates."""
        return sum(map(len, self._state.runs)) + len(self._state.tail_hashes)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the runs, newest first."""
        return self._state.runs

    @property
    def tail(self) -> tuple[Updates, ...]:
        """Return the updates that are in no run yet, oldest first."""
        return self._state.tail

    def insert(self, updates: pa.Table, upper: Timestamp) -> None:
        """Insert all updates with self.upper <= time < upper: rows' columns, times, diffs."""
        state = self._state
        assert upper >= state.upper, (self.name, upper, state.upper)
        if not len(updates):
            self.advance(upper)
            return
        self.insert_updates(self._updates_of(updates), upper)

    def insert_updates(self, part: Updates, upper: Timestamp) -> None:
        """Insert all updates with self.upper <= time < upper, which are few and hashed already."""
        state = self._state
        tail = (*state.tail, part)
        hashes = np.concatenate([state.tail_hashes, part.key_hashes])
        self._state = State(state.runs, tail, hashes, upper)
        if len(hashes) > TAIL_ROWS or len(tail) > TAIL_PARTS:
            self._spill()

    def advance(self, upper: Timestamp) -> None:
        """Record that there are no updates up to `upper`."""
        state = self._state
        self._state = State(state.runs, state.tail, state.tail_hashes, upper)

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        self.since = max(self.since, since)

    # --- checkpoints

    def save(self, to: Writer) -> None:
        """Write all updates; `since` may be beyond them, as that of a replica that is behind."""
        to.numbers("times", self.since, self.upper)
        to.numbers("rows", self.rows)
        if self.rows:
            to.table("updates", self._updates_from(self.since))

    def load(self, saved: Reader) -> None:
        """Take saved updates over; there are none yet."""
        self.since, upper = saved.numbers("times")
        self._state = State((), (), np.empty(0, np.uint64), min(self.since, upper))
        if saved.numbers("rows") != [0]:
            self.insert(saved.table("updates"), upper)
        self.advance(upper)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._merge is not None or self.next_merge() is not None

    def maintain(self, budget: int = MERGE_BUDGET) -> bool:
        """Do some of the due merging; return whether there is more."""
        if self._merge is None:
            self._merge = self.next_merge()
            if self._merge is None:
                return False
        merged = self._merge.work(budget)
        if merged is not None:
            self.install(self._merge, merged)
            self._merge = None
        return True

    def next_merge(self) -> Merge | None:
        """Return a due merge that is not begun; the caller works on it and installs it."""
        runs = self._state.runs
        for newer, older in pairwise(runs):
            if len(older) < 2 * len(newer):
                return Merge(newer, older, self.since)
        return None

    def install(self, merge: Merge, merged: Run) -> None:
        """Replace the merged runs by the result."""
        state = self._state
        at = next(i for i, run in enumerate(state.runs) if run is merge.newer)
        runs = (*state.runs[:at], merged, *state.runs[at + 2 :])
        self._state = State(runs, state.tail, state.tail_hashes, state.upper)

    def insert_prepared(self, parts: Iterable[Updates], time: Timestamp, upper: Timestamp) -> None:
        """Insert hashed `parts`, large ones sorted, at `time`: all updates up to `upper`."""
        state = self._state
        assert upper >= state.upper, (self.name, upper, state.upper)
        tail, hashes = list(state.tail), [state.tail_hashes]
        large = []
        for part in parts:
            timed = part.at(time)
            if len(part) > TAIL_ROWS:
                large.append(timed)
            elif len(part):
                tail.append(timed)
                hashes.append(timed.key_hashes)
        together = np.concatenate(hashes) if len(hashes) > 1 else state.tail_hashes
        self._state = State(state.runs, tuple(tail), together, upper)
        if len(together) > TAIL_ROWS or len(tail) > TAIL_PARTS or (large and tail):
            self._spill()
        for updates in large:
            state = self._state
            lower = state.runs[0].upper if state.runs else 0
            runs = (Run.of(updates, lower, upper, self.since), *state.runs)
            self._state = State(runs, state.tail, state.tail_hashes, upper)

    def _updates_of(self, table: pa.Table) -> Updates:
        columns = [column.combine_chunks() for column in table.columns]
        arrays = [c.chunk(0) if isinstance(c, pa.ChunkedArray) else c for c in columns]
        rows = pa.RecordBatch.from_arrays(arrays[:-2], schema=self.schema)
        return self._hashed(rows, arrays[-2].to_numpy(zero_copy_only=False), arrays[-1])

    def _hashed(self, rows: pa.RecordBatch, times: Ints, diffs: pa.Array) -> Updates:
        return Updates(
            rows,
            hash_columns(self._key_columns(rows), self._key_types, len(rows)),
            hash_columns(rows.columns, None, len(rows)),
            times,
            diffs.to_numpy(zero_copy_only=False),
        )

    def _spill(self) -> None:
        """Turn the tail into a run."""
        state = self._state
        updates = sort_and_consolidate(concat(list(state.tail)), self.since)
        lower = state.runs[0].upper if state.runs else 0
        runs = (Run.of(updates, lower, state.upper, self.since), *state.runs)
        self._state = State(runs, (), np.empty(0, np.uint64), state.upper)

    # --- readers

    def look_up(
        self, keys: Sequence[Key], time: Timestamp, most: int | None = None
    ) -> pa.RecordBatch:
        """Return the rows at `time` whose key is in `keys`, each as often as its multiplicity.

        Raises TooManyRows if more than `most` updates are examined, counting retractions, and rows
        of other keys with the same hash.
        """
        state = self._readable(time)
        if len(keys) > FEW_KEYS and self._key_types:
            return self._contents(self._under_keys(keys, most), time)
        parts: list[Updates] = []
        done: set[tuple[int, ...]] = set()
        left = most
        for key in keys:
            words = key_words(key, self._key_types)
            if words is None or words in done:
                continue
            done.add(words)
            found = self._probe(state, np.uint64(hash_words(words)))
            if left is not None:
                left -= check_cost(found, left)
            parts += (u for part in found if len(u := self._with_key(part, key)))
        return self._contents(parts, time)

    def _under_keys(self, keys: Sequence[Key], most: int | None) -> list[Updates]:
        """Return the updates under many keys; raises TooManyRows as `look_up` does."""
        try:
            columns = _columns_of(keys, self._key_types)
        except (pa.ArrowInvalid, OverflowError):  # a value is not of the type
            known = [key for key in keys if _are_of(key, self._key_types)]
            columns = _columns_of(known, self._key_types)
        hashes = hash_columns(columns, self._key_types, len(columns[0]))
        parts: list[Updates] = []
        left = most
        for source, places, at in self.matching(hashes):
            if left is not None and len(at) > left:
                raise TooManyRows
            found = source.take(at)
            if left is not None:
                left -= check_cost([found], left)
            equal = np.ones(len(at), np.bool_)
            there = self._key_columns(found.rows)
            for sought, column, type in zip(columns, there, self._key_types, strict=True):
                equal &= pairs_equal(column, sought.take(pa.array(places)), type)
                equal &= column.is_valid().to_numpy(zero_copy_only=False)  # NULL equals nothing
            _, firsts = np.unique(at[equal], return_index=True)  # a key may be named twice
            if len(firsts):
                parts.append(found.take(np.flatnonzero(equal)[firsts]))
        return parts

    def scan(self, time: Timestamp, most: int | None = None) -> pa.RecordBatch:
        """Return all rows at `time`, each as often as its multiplicity.

        Raises TooManyRows as `look_up` does.
        """
        state = self._readable(time)
        parts = [*(run.updates for run in state.runs), *state.tail]
        if most is not None:
            check_cost(parts, most)
        return self._contents(parts, time)

    def in_range(
        self, span: Span, time: Timestamp, few: int, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows at `time` in one part; raises TooManyRows as `look_up` does."""
        yield self.scan(time, most)

    def under(self, hash: int) -> list[Updates]:
        """Return the updates at all times whose key has this hash; the keys may differ."""
        return self._probe(self._state, np.uint64(hash))

    def runs_and_tail(self, hash: int) -> tuple[tuple[Run, ...], list[Updates]]:
        """Return all runs, and of what is in no run yet the updates whose key has this hash."""
        state = self._state
        return state.runs, _in_tail(state, np.uint64(hash)) if len(state.tail_hashes) else []

    def parts(self) -> list[Updates]:
        """Return all updates, at all times."""
        state = self._state
        return [*(run.updates for run in state.runs), *state.tail]

    def updates(self, as_of: Timestamp) -> pa.Table:
        """Return all updates, those before `as_of` moved to it: rows' columns, times, diffs."""
        self._readable(as_of)
        return self._updates_from(as_of)

    def _updates_from(self, since: Timestamp) -> pa.Table:
        """Return all updates, those before `since` moved to it."""
        parts = self.parts()
        schema = update_schema(self.schema)
        if not parts:
            return schema.empty_table()
        found = sort_and_consolidate(concat(parts), since)
        arrays = [*found.rows.columns, pa.array(found.times), pa.array(found.diffs)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def find(self, hashes: Words) -> list[tuple[Ints, Updates]]:
        """Return the updates at all times whose keys have one of `hashes`, with positions in it.

        The keys themselves may differ.
        """
        return [(places, source.take(at)) for source, places, at in self.matching(hashes)]

    def totals(self, hashes: Words) -> Ints:
        """Return for each of `hashes` how many rows have a key with it, at the newest time."""
        sums = np.zeros(len(hashes), np.int64)
        for source, places, at in self.matching(hashes):
            np.add.at(sums, places, source.diffs[at])
        return sums

    def latest(self, hashes: Words) -> Timestamp:
        """Return the last time at which a key with one of `hashes` changed; 0 if none did.

        Times before `since` may be reported as `since`.
        """
        found = self.matching(hashes)
        return max((int(source.times[at].max()) for source, _, at in found), default=0)

    def changed_since(self, time: Timestamp) -> Words:
        """Return the key hashes of all updates after `time`, or after `since` if that is later."""
        state = self._state
        parts = [run.updates for run in state.runs if run.latest > time]
        found = [part.key_hashes[part.times > time] for part in (*parts, *state.tail)]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def matching(self, hashes: Words) -> Iterator[tuple[Updates, Ints, Ints]]:
        """Yield updates with pairs of equal hashes: positions in `hashes` and in the updates."""
        state = self._state
        for run in state.runs:
            places, at = _equal_pairs(run.updates.key_hashes, hashes)
            if len(at):
                yield run.updates, places, at
        if not len(state.tail_hashes):
            return
        order = np.argsort(state.tail_hashes, kind="stable")
        places, at = _equal_pairs(state.tail_hashes[order], hashes)
        if len(at):
            at = order[at]
            sorting = np.argsort(at, kind="stable")
            places, at = places[sorting], at[sorting]
            for part, lo, hi, start in spread(state.tail, at):
                yield part, places[lo:hi], at[lo:hi] - start

    def _readable(self, time: Timestamp) -> State:
        state = self._state
        if not self.since <= time < state.upper:
            raise ObjectNotInPrerequisiteState(
                f"index {self.name} cannot be read as of {time}",
                detail=f"It is readable from {self.since} and before {state.upper}.",
            )
        return state

    @staticmethod
    def _probe(state: State, hash: np.uint64) -> list[Updates]:
        found = []
        for run in state.runs:
            start, stop = run.range_of(hash)
            if start < stop:
                found.append(run.updates.slice(start, stop))
        return found + _in_tail(state, hash)

    def _with_key(self, updates: Updates, key: Key) -> Updates:
        """Return the updates whose key equals `key`, beyond having its hash."""
        if not key:
            return updates
        columns = self._key_columns(updates.rows)
        if len(updates) == 1 and self._direct:
            same = all(
                column[0].as_py() == datum for column, datum in zip(columns, key, strict=True)
            )
            return updates if same else updates.slice(0, 0)
        equal = np.logical_and.reduce(
            [
                keys_equal(column, datum, type)
                for column, datum, type in zip(columns, key, self._key_types, strict=True)
            ]
        )
        return updates if equal.all() else updates.take(np.flatnonzero(equal))

    def _contents(self, parts: list[Updates], time: Timestamp) -> pa.RecordBatch:
        """Return the rows that the updates of `parts` up to `time` add up to."""
        seen = []
        for part in parts:
            past = part.times <= time
            if past.all():
                seen.append(part)
            elif past.any():
                seen.append(part.take(np.flatnonzero(past)))
        if not seen:
            return pa.RecordBatch.from_arrays(
                [pa.array([], field.type) for field in self.schema], schema=self.schema
            )
        updates = concat(seen)
        counts = self._counts(updates)
        return updates.rows if counts is None else _repeated(updates.rows, counts)

    def _counts(self, updates: Updates) -> Ints | None:
        """Return how often each row of some updates is there in the end; None: each once.

        Of equal rows of which some are taken away one has what they add up to.
        """
        hashes, diffs = updates.row_hashes, updates.diffs
        if not len(diffs) or diffs.min() >= 0:
            return None if diffs.max(initial=1) == 1 else diffs
        retracted = np.unique(hashes[diffs < 0])
        place = np.minimum(np.searchsorted(retracted, hashes), len(retracted) - 1)
        touched = np.flatnonzero(retracted[place] == hashes)
        order = touched[np.argsort(hashes[touched], kind="stable")]
        sorted_hashes = hashes[order]
        new = np.empty(len(order), np.bool_)
        new[:1] = True
        new[1:] = sorted_hashes[1:] != sorted_hashes[:-1]
        starts = np.flatnonzero(new)
        sums = np.add.reduceat(diffs[order], starts)
        if (sums < 0).any():
            raise InternalError(
                f"collection {self.name} has a row with a negative multiplicity",
                detail="A maintained plan is wrong; the answer is withheld.",
            )
        counts: Ints = np.where(retracted[place] == hashes, 0, diffs)
        counts[order[starts]] = sums
        return counts

    # --- about itself

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the numbers of updates, runs and bytes."""
        state = self._state
        parts = [*(run.updates for run in state.runs), *state.tail]
        return sum(map(len, parts)), len(state.runs), sum(part.nbytes for part in parts)

    def check(self) -> None:
        """Assert the invariants of the runs."""
        state = self._state
        for run in state.runs:
            run.check()
        for newer, older in zip(state.runs, state.runs[1:], strict=False):
            assert older.upper == newer.lower
        assert len(state.tail_hashes) == sum(map(len, state.tail))


# Types whose Python values are the datums by which they are looked up.
_DIRECT = frozenset(
    ["int2", "int4", "int8", "oid", "text", "varchar", "bpchar", "name", "mz_timestamp", "money"]
)


def _columns_of(keys: Sequence[Key], types: Sequence[SqlType]) -> list[pa.Array]:
    """Return keys as columns; raises ArrowInvalid or OverflowError if a value is not of its type.

    There is at least one column.
    """
    parts = zip(*keys, strict=True) if keys else ((),) * len(types)
    return [to_array(part, type) for part, type in zip(parts, types, strict=True)]


def _are_of(key: Key, types: Sequence[SqlType]) -> bool:
    """Whether the values of a key have these types."""
    try:
        _columns_of([key], types)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def check_cost(parts: Sequence[Updates], most: int) -> int:
    """Return how many rows `parts` insert and delete; raises TooManyRows if more than `most`."""
    total = 0
    for part in parts:
        rows = len(part)
        total += rows if rows > most else int(np.abs(part.diffs).sum())
        if total > most:
            raise TooManyRows
    return total


def _in_tail(state: State, hash: np.uint64) -> list[Updates]:
    """Return the updates of the tail whose key has this hash."""
    hits = np.flatnonzero(state.tail_hashes == hash)
    return _pick(state.tail, hits) if len(hits) else []


def _pick(parts: Sequence[Updates], hits: Any) -> list[Updates]:
    """Return the updates at `hits`, positions in the concatenation of `parts`."""
    return [part.take(hits[lo:hi] - start) for part, lo, hi, start in spread(parts, hits)]


def spread(parts: Sequence[Updates], hits: Any) -> Iterator[tuple[Updates, int, int, int]]:
    """Yield each part that has some of `hits`: which of them, and where the part starts."""
    start = 0
    for part in parts:
        stop = start + len(part)
        lo, hi = np.searchsorted(hits, [start, stop])
        if lo < hi:
            yield part, int(lo), int(hi), start
        start = stop


def _equal_pairs(sorted_hashes: Words, hashes: Words) -> tuple[Ints, Ints]:
    """Return all pairs of positions in `hashes` and `sorted_hashes` with equal values."""
    if len(hashes) > MANY_HASHES and not bool(np.all(hashes[1:] >= hashes[:-1])):
        order = np.argsort(hashes, kind="stable")  # what is near is found ten times faster
        places, at = _equal_pairs(sorted_hashes, hashes[order])
        return order[places], at
    if not len(sorted_hashes):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = sorted_hashes.searchsorted(hashes)
    last = len(sorted_hashes) - 1
    places = np.flatnonzero(sorted_hashes[np.minimum(starts, last)] == hashes)
    starts, wanted = starts[places], hashes[places]
    several = (starts < last) & (sorted_hashes[np.minimum(starts + 1, last)] == wanted)
    if not several.any():
        return places, starts
    counts = np.ones(len(places), np.int64)
    counts[several] = sorted_hashes.searchsorted(wanted[several], "right") - starts[several]
    offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(places, counts), np.repeat(starts, counts) + offsets


def repeated(updates: Updates) -> pa.RecordBatch:
    """Return the rows of updates, each as often as its diff says."""
    return _repeated(updates.rows, updates.diffs)


def _repeated(rows: pa.RecordBatch, counts: Any) -> pa.RecordBatch:
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def consolidate(updates: pa.Table, schema: pa.Schema, since: Timestamp) -> pa.Table:
    """Return the consolidated updates with times moved to `since`; `schema` is that of rows."""
    arrangement = Arrangement("", schema, (), lambda _: [], since)
    part = sort_and_consolidate(arrangement._updates_of(updates), since)
    arrays = [*part.rows.columns, pa.array(part.times), pa.array(part.diffs)]
    return pa.Table.from_arrays(arrays, schema=updates.schema)
