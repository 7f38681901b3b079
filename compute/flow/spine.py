"""Spines: arrangements of rows in words by one or more keys, readable at several times.

    insert      updates; small ones gather in a hash-chained tail
    joined      given rows with the rows that have the same key
    maintain    merge some runs, with a budget
    compact     forget the times before a new since

A key is some words of a row. A spine is a list of immutable runs, newest first, whose sizes grow
geometrically, and a tail. A run is sorted by (hash of the first key, words, time). Each further key
has an index in each run: the sorted hashes, with the places of the rows, computed by the first
look-up that reads them. Many updates at once become a run when somebody reads the spine, or when
there are `UNSORTED` of them: what nobody reads is sorted and merged less often.

One thread at a time uses a spine, but `joined_runs`, `sorted` and the work of a merge may go on
beside. `mark` and `restore` undo the insertions in between, so that a step is all or nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from foreshore.compute.checkpoint.state import Mismatch, Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words, concat, empty
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import probing, rows
from foreshore.compute.flow.kernels.probing import ANY, TooManyMatches
from foreshore.compute.flow.merge import Merge
from foreshore.compute.flow.run import Index, Places, Run, one_if_same
from foreshore.compute.flow.sorter import BLOCK, Sorter
from foreshore.compute.flow.tail import Chains, Tail
from foreshore.compute.presence import Bits
from foreshore.update import Timestamp

TAIL_ROWS = 1 << 14
SORTED_BY_BLOCKS = 1 << 16  # updates from which on moving rows twice is faster
UNSORTED = 1 << 16  # updates from which on `maintain` sorts what nobody has read
MERGE_BUDGET = 65_536
CROWDED = 512  # updates in a tail from which on it is worth while to add equal ones up


ANY_ROW = np.empty((0, 5), np.int64)  # no condition
_AS_THEY_ARE = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Hashes of rows that look something up, with the row of each; without if it is the same."""

    hashes: Hashes
    order: Places

    def part(self, start: int, stop: int) -> "Wanted":
        """Return some of them."""
        return Wanted(self.hashes[start:stop], self.order[start:stop])


@dataclass(frozen=True, slots=True)
class Mark:
    """A state to return to."""

    runs: tuple[Run, ...]
    unsorted: tuple[Batch, ...]
    tail: Tail
    used: int

    @property
    def is_empty(self) -> bool:
        """Whether there were no updates."""
        return not self.runs and not self.unsorted and not self.used


class Spine:
    """An arrangement of rows; `keys` are the places of the words of each key.

    `texts` says how each word is ordered within a key (`kernels/rows.py`).
    """

    ordered = False

    def __init__(
        self,
        keys: Sequence[Ints],
        texts: Ints,
        interner: Interner,
        seed: int,
        since: Timestamp = 0,
    ) -> None:
        self.keys = list(keys)
        self.texts = texts
        self.since = since
        self.width = len(texts)
        self.unsorted: tuple[Batch, ...] = ()  # newer than the runs
        self._runs: tuple[Run, ...] = ()
        self.interner = interner
        self.seed = np.uint64(seed)
        self.tail = Tail(self.width, len(self.keys), 64)
        self._merge: Merge | None = None
        self.merges = 0  # that are done
        self._full = CROWDED  # updates in the tail at which it is consolidated

    def __len__(self) -> int:
        """Return the number of updates."""
        sizes = [*map(len, self._runs), *map(len, self.unsorted)]
        return sum(sizes) + self.tail.used

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        unsorted = sum(batch.nbytes for batch in self.unsorted)
        return sum(run.nbytes for run in self._runs) + unsorted + self.tail.nbytes

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the runs, newest first; what is not sorted yet is sorted."""
        if self.unsorted:
            self.settle(self.unsorted, self.sorted(concat(self.unsorted, self.width)))
        return self._runs

    @property
    def parts(self) -> int:
        """Return the number of runs, and of those still to be sorted."""
        return len(self._runs) + len(self.unsorted)

    def size(self, name: str) -> ArrangementSize:
        """Return the size as that of an arrangement called `name`; the tail is a batch."""
        batches = self.parts + 1
        return ArrangementSize(name, len(self), batches, self.nbytes, merges=self.merges)

    def hashes(self, words: Words, key: int = 0) -> Hashes:
        """Return the hash of the key with number `key` of each row."""
        found = np.empty(len(words), np.uint64)
        rows.hash_places(words, self.keys[key], self.seed, found)
        return found

    def number_of(self, places: Ints) -> int | None:
        """Return the number of a key, None if it is not there."""
        for number, known in enumerate(self.keys):
            if np.array_equal(known, places):
                return number
        return None

    def add_key(self, places: Ints) -> int:
        """Add a key, unless it is there; return its number."""
        number = self.number_of(places)
        if number is not None:
            return number
        number = len(self.keys)
        self.keys.append(places)
        self._merge = None
        if number > 0:
            self._runs = tuple(
                replace(run, indexes=(*run.indexes, Index(run.words, places, self.seed)))
                for run in self._runs
            )
        chains = Chains(self.tail.room)
        if self.tail.used:
            chains.append(0, self.hashes(self.tail.contents().words, number))
        self.tail.chains.append(chains)
        return number

    def is_indexed(self, key: int) -> bool:
        """Whether a look-up by a key has no index to make, and not many rows to sort, first."""
        if key == 0:
            return not self.has_to_sort
        return not self.unsorted and all(run.indexes[key - 1].is_made for run in self._runs)

    # --- insertion

    def insert(self, batch: Batch) -> None:
        """Insert updates, none of which is before `since`."""
        if not len(batch):
            return
        if self.is_large(batch):
            self.unsorted = (batch.alone(), *self.unsorted)
            return
        needed = self.tail.used + len(batch)
        if needed > TAIL_ROWS:
            self._spill()
            needed = len(batch)
        if needed > self.tail.room:
            grown = Tail(self.width, len(self.keys), 1 << (2 * needed - 1).bit_length())
            grown.append(self.tail.hashes(), self.tail.contents())
            self.tail = grown
        self.tail.append(self._hashes_by_key(batch), batch)

    def _hashes_by_key(self, batch: Batch) -> list[Hashes]:
        return [self.hashes(batch.words, key) for key in range(len(self.keys))]

    @staticmethod
    def is_large(batch: Batch) -> bool:
        """Whether updates do not go to the tail."""
        return len(batch) > TAIL_ROWS // 4

    def add_run(self, run: Run) -> None:
        """Insert updates that `sorted` has made a run."""
        self._runs = (run, *self.runs)

    def settle(self, unsorted: Sequence[Batch], run: Run) -> None:
        """Replace updates that were not sorted by the run of them, unless others did meanwhile."""
        newer = len(self.unsorted) - len(unsorted)
        is_same = newer >= 0 and self.unsorted[newer:] == tuple(unsorted)
        if is_same and len(run.indexes) == len(self.keys) - 1:
            self.unsorted = self.unsorted[:newer]
            self._runs = (run, *self._runs)

    def sorted(self, batch: Batch) -> Run:
        """Return updates as a run."""
        if len(batch) >= SORTED_BY_BLOCKS:
            sorter, key = Sorter(self.seed, len(batch)), self.keys[0]
            parts = [slice(i, i + BLOCK) for i in range(0, len(batch), BLOCK)]
            for part in parts:
                sorter.count(batch.words[part], key)
            sorter.begin(self.width)
            for part in parts:
                sorter.add(batch.words[part], batch.times[part], batch.diffs[part], key)
            return self.run_of(sorter)
        hashes, places = rows.sort_hashes(self.hashes(batch.words))
        found = rows.clustered(
            hashes,
            places,
            batch.words,
            one_if_same(batch.times),
            one_if_same(batch.diffs),
            self.since,
            self.seed,
        )
        return self._run(found)

    def run_of(self, sorter: Sorter) -> Run:
        """Return the updates that were added to a sorter as a run."""
        return self._run(sorter.sorted(self.since))

    def run_of_arrays(self, hashes: Hashes, words: Words, times: Ints, diffs: Ints) -> Run:
        """Return updates that were sorted elsewhere, in the order of `sorted`, as a run."""
        return self._run((hashes, words, times, diffs))

    def _run(self, parts: tuple[Hashes, Words, Ints, Ints]) -> Run:
        indexes = tuple(Index(parts[1], places, self.seed) for places in self.keys[1:])
        return self._smaller(Run(parts[0], parts[1], parts[2], parts[3], indexes))

    def _smaller(self, run: Run) -> Run:
        """Return a run with one time and one diff if they are the same for all."""
        if self.ordered:
            return run
        return replace(run, times=one_if_same(run.times), diffs=one_if_same(run.diffs))

    def _spill(self) -> None:
        """Begin a new tail."""
        if self.tail.used:
            self.unsorted = (self.tail.contents(), *self.unsorted)
        self.tail = Tail(self.width, len(self.keys), self.tail.room)
        self._full = CROWDED

    def mark(self) -> Mark:
        """Return the present state."""
        return Mark(self._runs, self.unsorted, self.tail, self.tail.used)

    def restore(self, mark: Mark) -> None:
        """Return to a state; nothing may have been merged since."""
        self._runs, self.unsorted, self.tail = mark.runs, mark.unsorted, mark.tail
        if self.tail.used > mark.used:
            self.tail.cut(mark.used)

    def clear(self) -> None:
        """Remove all updates, until a mark that was made before is restored."""
        self._runs, self.unsorted, self._merge = (), (), None
        self.tail = Tail(self.width, len(self.keys), 64)
        self._full = CROWDED

    def save(self, to: Writer) -> None:
        """Write all updates, and the keys."""
        to.numbers("since", self.since)
        to.numbers("keys", len(self.keys))
        for number, places in enumerate(self.keys):
            to.array(f"key{number}", np.asarray(places, np.int64))
        to.runs("runs", self.runs)
        tail = self.tail.contents()
        for name in ("words", "times", "diffs"):
            to.array(f"tail.{name}", getattr(tail, name).copy())

    def load(self, saved: Reader) -> None:
        """Take saved updates over; the keys must be the same."""
        keys = saved_keys(saved)
        if len(keys) != len(self.keys) or not all(map(np.array_equal, keys, self.keys)):
            raise Mismatch("an arrangement has other keys")
        (self.since,) = saved.numbers("since")
        self.unsorted = ()
        runs = saved.runs("runs", lambda arrays: Run.of(arrays, keys, self.seed))
        if any(run.words.shape != (len(run), self.width) for run in runs):
            raise Mismatch("an arrangement has runs of another width")
        self._runs = runs
        words, times, diffs = (saved.array(f"tail.{name}") for name in ("words", "times", "diffs"))
        tail = Batch(words, times, diffs)
        if words.shape != (len(tail), self.width):
            raise Mismatch("an arrangement has rows of another width")
        self.tail = Tail(self.width, len(keys), 1 << (2 * len(tail) + 63).bit_length())
        if len(tail):
            self.tail.append(self._hashes_by_key(tail), tail)

    def forget(self, gone: Callable[[Words], Bits]) -> None:
        """Forget the rows for which `gone` returns true; what is in the tail stays."""
        kept = []
        for run in self.runs:
            keep = np.flatnonzero(~gone(run.words))
            if len(keep):
                times, diffs = (
                    each[keep] if len(each) == len(run) else each for each in (run.times, run.diffs)
                )
                kept.append(self._run((run.hashes[keep], run.words[keep], times, diffs)))
        self._runs, self._merge = tuple(kept), None

    # --- maintenance

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        self.since = max(self.since, since)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return (
            self.tail.used >= self._full
            or self.has_to_sort
            or self._merge is not None
            or self._has_to_merge()
        )

    @property
    def has_to_sort(self) -> bool:
        """Whether there are too many updates that nobody has read."""
        return sum(map(len, self.unsorted)) >= UNSORTED

    def _has_to_merge(self) -> bool:
        return any(len(older) < 2 * len(newer) for newer, older in pairwise(self._runs))

    def maintain(self) -> bool:
        """Merge about `MERGE_BUDGET` updates of runs; return whether there is more to do."""
        self.thin()
        merge = self.due_merge()
        if merge is None:
            return False
        if merge.work(MERGE_BUDGET):
            self.install(merge)
        return True

    def thin(self) -> None:
        """Add up the updates of the tail if it has grown much, as a row may change very often."""
        if self.tail.used < self._full:
            return
        updates = self.sorted(self.tail.contents()).updates()
        if 2 * len(updates) <= self.tail.used:
            tail = Tail(self.width, len(self.keys), 1 << (2 * len(updates) + 63).bit_length())
            tail.append(self._hashes_by_key(updates), updates)
            self.tail = tail
        self._full = max(CROWDED, 2 * self.tail.used)

    def due_merge(self) -> Merge | None:
        """Return the merge that is under way or due, None if there is none."""
        runs = self.runs if self.has_to_sort else self._runs
        if self._merge is None:
            self._merge = self._next_merge(runs)
        return self._merge

    def install(self, merge: Merge) -> None:
        """Replace two runs by what their merge has come to, unless it was given up meanwhile."""
        if self._merge is merge:
            at = self._runs.index(merge.newer)
            self._runs = (*self._runs[:at], self._smaller(merge.run()), *self._runs[at + 2 :])
            self._merge = None
            self.merges += 1

    def _next_merge(self, runs: Sequence[Run]) -> Merge | None:
        for newer, older in pairwise(runs):
            if len(older) < 2 * len(newer):
                return self._merge_of(newer, older)
        return None

    def _merge_of(self, newer: Run, older: Run) -> Merge:
        return Merge(
            newer, older, self.since, self.texts, self.interner, self.seed,
            keys=self.keys, ordered=self.ordered,
        )  # fmt: skip

    # --- reading

    def joined(
        self,
        key: int,
        batch: Batch,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = ANY_ROW,
    ) -> Batch:
        """Return the join of `batch`, rows that begin with a key, with the updates before a time.

        Of a row of `batch` the words at `kept` remain; then come those at `added` of the other. Of
        these others only those count that fulfil `where` (`conditions.py`). Raises TooManyMatches
        if they are more than `most`, or if more have such hashes in one part.
        """
        wanted = self.wanted(key, batch)
        found = [
            self.joined_runs(self.runs, key, batch, wanted, kept, added, before, most, where),
            self.joined_tail(key, batch, wanted, kept, added, before, most, where),
        ]
        return concat(found, len(kept) + len(added))

    def wanted(self, key: int, batch: Batch) -> Wanted:
        """Return the hashes of rows that begin with a key, in an order that suits the runs."""
        hashes = np.empty(len(batch), np.uint64)
        rows.hash_keys(batch.words, len(self.keys[key]), self.seed, hashes)
        if len(batch) < probing.IN_ORDER:
            return Wanted(hashes, _AS_THEY_ARE)
        return Wanted(*rows.sort_hashes(hashes))

    def joined_runs(
        self,
        runs: Sequence[Run],
        key: int,
        batch: Batch,
        wanted: Wanted,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = ANY_ROW,
    ) -> Batch:
        """Return what `joined` does, with the updates of some runs."""
        found = []
        size = 0
        places = self.keys[key]
        for run in runs:
            if key == 0:
                left, right, total = probing.probe_run(
                    wanted.hashes, wanted.order, batch.words, places,
                    run.hashes, run.words, run.times, before, most, where,
                )  # fmt: skip
            else:
                index = run.indexes[key - 1]
                left, right, total = probing.probe_index(
                    wanted.hashes, wanted.order, batch.words, places, index.hashes, index.places,
                    run.words, run.times, before, most, where,
                )  # fmt: skip
            size += len(left)
            if max(total, size) > most:
                raise TooManyMatches
            if len(left):
                other = Batch(run.words, run.times, run.diffs)
                found.append(_pairs(left, right, batch, other, kept, added))
        return concat(found, len(kept) + len(added))

    def joined_tail(
        self,
        key: int,
        batch: Batch,
        wanted: Wanted,
        kept: Ints,
        added: Ints,
        before: Timestamp,
        most: int = ANY,
        where: Words = ANY_ROW,
    ) -> Batch:
        """Return what `joined` does, with the updates of the tail."""
        tail = self.tail
        if not tail.used:
            return empty(len(kept) + len(added))
        chains = tail.chains[key]
        left, right, total = probing.probe_tail(
            wanted.hashes, wanted.order, batch.words, self.keys[key], chains.heads,
            chains.following, chains.hashes, tail.words, tail.times, before, most, where,
        )  # fmt: skip
        if total > most:
            raise TooManyMatches
        other = Batch(tail.words, tail.times, tail.diffs)
        return _pairs(left, right, batch, other, kept, added)


def saved_keys(saved: Reader) -> list[Ints]:
    """Return the keys of a spine that was saved."""
    (count,) = saved.numbers("keys")
    return [saved.array(f"key{number}") for number in range(count)]


def _pairs(left: Ints, right: Ints, batch: Batch, other: Batch, kept: Ints, added: Ints) -> Batch:
    return Batch(
        *probing.joined(
            left, right, batch.words, batch.times, batch.diffs,
            other.words, other.times, other.diffs, kept, added,
        )
    )  # fmt: skip
