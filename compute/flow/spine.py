"""Spines: arrangements of rows in words by key, readable at several times.

    insert      updates; small ones gather in a hash-chained tail
    probe       pairs of given rows and rows with the same key
    maintain    merge some runs, with a budget
    compact     forget the times before a new since

The key is the first words of a row. A spine is a list of immutable runs, newest first, whose sizes
grow geometrically, and a tail. A run is sorted by (hash of the key, words, time). One thread owns a
spine. `mark` and `restore` undo the insertions in between, so that a step is all or nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words, concat
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import probing, rows
from foreshore.update import Timestamp

TAIL_ROWS = 1 << 14
MERGE_BUDGET = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sorted and consolidated updates."""

    hashes: Hashes
    words: Words
    times: Ints
    diffs: Ints

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return self.hashes.nbytes + self.words.nbytes + self.times.nbytes + self.diffs.nbytes


class Tail:
    """Updates in order of arrival, chained by the hash of their key."""

    def __init__(self, width: int, room: int) -> None:
        self.used = 0
        self.heads = np.full(max(2 * room, 16), -1, np.int64)
        self.following = np.empty(room, np.int64)
        self.hashes = np.empty(room, np.uint64)
        self.words = np.empty((room, width), np.int64)
        self.times = np.empty(room, np.int64)
        self.diffs = np.empty(room, np.int64)

    @property
    def room(self) -> int:
        """Return how many updates it can hold."""
        return len(self.following)

    def append(self, hashes: Hashes, batch: Batch) -> None:
        """Add updates for which there is room."""
        probing.append_to_tail(
            self.heads,
            self.following,
            self.hashes,
            self.words,
            self.times,
            self.diffs,
            self.used,
            hashes,
            batch.words,
            batch.times,
            batch.diffs,
        )
        self.used += len(batch)

    def cut(self, used: int) -> None:
        """Remove the updates beyond the first `used`."""
        probing.cut_tail(self.heads, self.following, self.hashes, self.used, used)
        self.used = used

    def contents(self) -> tuple[Hashes, Batch]:
        """Return the updates and their hashes."""
        used = self.used
        batch = Batch(self.words[:used], self.times[:used], self.diffs[:used])
        return self.hashes[:used], batch


@dataclass(frozen=True, slots=True)
class Mark:
    """A state to return to."""

    runs: tuple[Run, ...]
    tail: Tail
    used: int


@dataclass(slots=True)
class _Merge:
    newer: Run
    older: Run
    out: Run
    since: Timestamp
    i: int = 0
    j: int = 0
    size: int = 0


class Spine:
    """An arrangement of rows whose first `key` words are the key.

    `texts` says how each word is ordered within a key (`kernels/rows.py`).
    """

    ordered = False

    def __init__(
        self, key: int, texts: Ints, interner: Interner, seed: int, since: Timestamp = 0
    ) -> None:
        self.key = key
        self.texts = texts
        self.since = since
        self.width = len(texts)
        self.runs: tuple[Run, ...] = ()
        self._interner = interner
        self._seed = np.uint64(seed)
        self.tail = Tail(self.width, 64)
        self._merge: _Merge | None = None

    def __len__(self) -> int:
        """Return the number of updates."""
        return sum(map(len, self.runs)) + self.tail.used

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return sum(run.nbytes for run in self.runs) + self.tail.room * (8 * self.width + 48)

    def size(self, name: str) -> ArrangementSize:
        """Return the size as that of an arrangement called `name`; the tail is a batch."""
        return ArrangementSize(name, len(self), len(self.runs) + 1, self.nbytes)

    def hashes(self, words: Words) -> Hashes:
        """Return the hash of the key of each row."""
        found = np.empty(len(words), np.uint64)
        rows.hash_keys(words, self.key, self._seed, found)
        return found

    # --- insertion

    def insert(self, batch: Batch) -> None:
        """Insert updates, none of which is before `since`."""
        if len(batch):
            self.insert_hashed(self.hashes(batch.words), batch)

    def insert_hashed(self, hashes: Hashes, batch: Batch) -> None:
        """Insert updates with the hashes of their keys."""
        needed = self.tail.used + len(batch)
        if len(batch) > TAIL_ROWS // 4:
            self.runs = (self.sorted(hashes, batch), *self.runs)
            return
        if needed > TAIL_ROWS:
            self._spill()
            needed = len(batch)
        if needed > self.tail.room:
            grown = Tail(self.width, 1 << (2 * needed - 1).bit_length())
            grown.append(*self.tail.contents())
            self.tail = grown
        self.tail.append(hashes, batch)

    def sorted(self, hashes: Hashes, batch: Batch) -> Run:
        """Return updates as a run."""
        return self._run(
            rows.sort_by_hashes(hashes, batch.words, batch.times, self._seed), hashes, batch
        )

    def _run(self, order: Ints, hashes: Hashes, batch: Batch) -> Run:
        """Return updates in `order` as a run."""
        return Run(
            *rows.gather_consolidated(
                order, hashes, batch.words, batch.times, batch.diffs, self.since
            )
        )

    def _spill(self) -> None:
        """Turn the tail into a run."""
        if self.tail.used:
            self.runs = (self.sorted(*self.tail.contents()), *self.runs)
        self.tail = Tail(self.width, self.tail.room)

    def mark(self) -> Mark:
        """Return the present state."""
        return Mark(self.runs, self.tail, self.tail.used)

    def restore(self, mark: Mark) -> None:
        """Return to a state; nothing may have been merged since."""
        self.runs, self.tail = mark.runs, mark.tail
        if self.tail.used > mark.used:
            self.tail.cut(mark.used)

    # --- maintenance

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        self.since = max(self.since, since)

    def maintain(self, budget: int = MERGE_BUDGET) -> bool:
        """Merge about `budget` updates of runs; return whether there is more to do."""
        merge = self._merge
        if merge is None:
            merge = self._merge = self._next_merge()
            if merge is None:
                return False
        a, b, out, interner = merge.newer, merge.older, merge.out, self._interner
        merge.i, merge.j, merge.size = probing.merge_runs(
            a.hashes, a.words, a.times, a.diffs, b.hashes, b.words, b.times, b.diffs,
            self.ordered, self._seed,
            self.texts, interner.arena, interner.starts, interner.lengths,
            merge.since, merge.i, merge.j, merge.size, budget,
            out.hashes, out.words, out.times, out.diffs,
        )  # fmt: skip
        if merge.i == len(a) and merge.j == len(b):
            self._install(merge)
        return True

    def _next_merge(self) -> _Merge | None:
        for newer, older in pairwise(self.runs):
            if len(older) < 2 * len(newer):
                room = len(newer) + len(older)
                out = Run(
                    np.empty(room, np.uint64),
                    np.empty((room, self.width), np.int64),
                    np.empty(room, np.int64),
                    np.empty(room, np.int64),
                )
                return _Merge(newer, older, out, self.since)
        return None

    def _install(self, merge: _Merge) -> None:
        size = merge.size
        if size and merge.out.diffs[size - 1] == 0:
            size -= 1
        out = merge.out
        parts = (out.hashes[:size], out.words[:size], out.times[:size], out.diffs[:size])
        if size < len(out) // 2:
            parts = tuple(part.copy() for part in parts)  # type: ignore[assignment]
        at = next(i for i, run in enumerate(self.runs) if run is merge.newer)
        self.runs = (*self.runs[:at], Run(*parts), *self.runs[at + 2 :])
        self._merge = None

    # --- reading

    def probe(
        self, wanted: Hashes, keys: Words, before: Timestamp
    ) -> Iterator[tuple[Ints, Ints, Batch]]:
        """Yield pairs of places: of rows of `keys`, and of updates before a time with their key."""
        for run in self.runs:
            left, right = probing.probe_run(
                wanted, keys, self.key, run.hashes, run.words, run.times, before
            )
            if len(left):
                yield left, right, Batch(run.words, run.times, run.diffs)
        tail = self.tail
        if tail.used:
            left, right = probing.probe_tail(
                wanted, keys, self.key, tail.heads, tail.following, tail.hashes, tail.words,
                tail.times, before,
            )  # fmt: skip
            if len(left):
                yield left, right, Batch(tail.words, tail.times, tail.diffs)

    def joined(self, batch: Batch, kept: Ints, before: Timestamp) -> Batch:
        """Return the join of `batch`, rows that begin with a key, with the updates before a time.

        Of a row of `batch` the words at `kept` remain; then come the words after the key.
        """
        wanted = self.hashes(batch.words)
        parts = [
            Batch(
                *probing.joined(
                    left, right, batch.words, batch.times, batch.diffs,
                    found.words, found.times, found.diffs, self.key, kept,
                )
            )
            for left, right, found in self.probe(wanted, batch.words, before)
        ]  # fmt: skip
        return concat(parts, len(kept) + self.width - self.key)
