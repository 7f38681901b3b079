"""The ranks of a recursion's rows: the rounds in which they are first found.

In a recursion that only adds rows, the rows of round i are those of ranks up to i. So the ranks say
what every round has, without the rows of any. For each row there are counts of the ways in which it
follows from rows of each rank; those from the inputs alone count as from rank 0.

    count           add to the counts
    next_round      the next round that gives or takes ranks
    settle          do so; return the changes of ranked rows, from which more counts follow

The rounds go up, and a round changes counts of its own rank or of higher ones only. So each rank is
final in its round: shortest paths, kept up to date as in Ramalingam and Reps, "An Incremental
Algorithm for a Generalization of the Shortest-Path Problem" (1996), for steps of length 1 and any
number of changes at once.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from foreshore.compute.checkpoint.state import Mismatch, Reader, Writer
from foreshore.compute.engine import ArrangementSize
from foreshore.compute.flow.batch import Batch, Ints, Words, empty
from foreshore.compute.flow.kernels import ranks as kernels
from foreshore.compute.flow.kernels import rows

NEVER = kernels.NEVER
FIRST = 1 << 62  # the time of rank 0, which is later than any time of an input
LEAST_DEAD = 1 << 12  # numbers of rows that are gone, from which on others get them


class _State:
    """The rows that are known by number, with their ranks and entries (`kernels/ranks.py`)."""

    def __init__(self, width: int, room: int, entries: int) -> None:
        self.count = 0
        self.words = np.empty((room, width), np.int64)
        self.hashes = np.empty(room, np.uint64)
        self.ranks = np.full(room, NEVER, np.int64)
        self.heads = np.full(room, -1, np.int64)
        self.stamps = np.zeros(room, np.int64)
        self.table = np.full(2 * room, -1, np.int64)
        self.entries = np.empty((entries, 3), np.int64)
        self.counters = np.array([0, -1], np.int64)

    @property
    def nbytes(self) -> int:
        arrays = (self.words, self.hashes, self.ranks, self.heads, self.stamps, self.table)
        return sum(array.nbytes for array in arrays) + self.entries.nbytes

    def without_ranks(self) -> "_State":
        """Return a state with the same numbers of rows and nothing else."""
        found = _State(self.words.shape[1], 0, len(self.entries))
        room = len(self.hashes)
        found.count = self.count
        found.words, found.hashes = self.words.copy(), self.hashes.copy()
        found.table = self.table.copy()
        found.ranks = np.full(room, NEVER, np.int64)
        found.heads = np.full(room, -1, np.int64)
        found.stamps = np.zeros(room, np.int64)
        return found

    def make_room(self, more: int) -> None:
        """Make room for more rows, and an entry of each."""
        needed = int(self.counters[kernels.USED]) + more
        if needed > len(self.entries):
            entries = np.empty((_room(needed), 3), np.int64)
            entries[: len(self.entries)] = self.entries
            self.entries = entries
        old, needed = len(self.hashes), self.count + more
        if needed <= old:
            return
        room = _room(needed)
        larger = _State(self.words.shape[1], room, 0)
        for name in ("words", "hashes", "ranks", "heads", "stamps"):
            getattr(larger, name)[:old] = getattr(self, name)
            setattr(self, name, getattr(larger, name))
        kernels.fill_table(self.hashes, self.count, larger.table)
        self.table = larger.table


def _room(needed: int) -> int:
    return 1 << max(6, needed.bit_length())


class Ranks:
    """Rows of `width` words with their ranks, which are `limit` at most.

    What changes is staged until `commit`.
    """

    def __init__(self, width: int, limit: int, seed: int) -> None:
        self._width = width
        self._limit = limit
        self._seed = np.uint64(seed)
        self._state = _State(width, 64, 64)
        self._replaced: _State | None = None  # by what is computed anew
        self._waiting: dict[int, list[Ints]] = {}  # rows, by the round that settles them
        self._rounds: list[int] = []  # a heap of these
        self._stamp = 0
        self._counted: list[tuple[Ints, Ints, Ints]] = []  # since the last commit
        self._settled: list[tuple[Ints, Ints]] = []  # likewise: rows and the ranks before
        self._reported = 0  # how many of these `changes` has told
        self._dead = 0  # numbers of rows that came to nothing, at most

    def size(self) -> ArrangementSize:
        """Return the size as that of an arrangement of rows, with those that are gone."""
        return ArrangementSize("ranks", self._state.count, 1, self.nbytes)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return self._state.nbytes

    # --- changes

    def count(self, words: Words, ranks: Ints, diffs: Ints) -> None:
        """Add to the counts of rows: how often each follows from rows of a rank."""
        if not len(words):
            return
        state = self._state
        state.make_room(len(words))
        hashes = np.empty(len(words), np.uint64)
        rows.hash_keys(words, self._width, self._seed, hashes)
        found, state.count = kernels.find_rows(
            words, hashes, state.table, state.words, state.hashes, state.count
        )
        self._add(found, ranks, diffs)

    def _add(self, found: Ints, ranks: Ints, diffs: Ints) -> None:
        state = self._state
        kernels.add_counts(found, ranks, diffs, state.heads, state.entries, state.counters)
        if self._replaced is None:
            self._counted.append((found, ranks, diffs))
        self._stamp += 1
        self._wait(
            *kernels.find_unsettled(
                found, state.ranks, state.heads, state.entries, state.stamps, self._stamp
            )
        )

    def _wait(self, found: Ints, rounds: Ints) -> None:
        if not len(found):
            return
        if rounds[0] == rounds[-1] and (rounds == rounds[0]).all():
            self._wait_for(int(rounds[0]), found)
            return
        order = np.argsort(rounds, kind="stable")
        starts = np.flatnonzero(np.diff(rounds[order], prepend=-1))
        for part in np.split(order, starts[1:]):
            self._wait_for(int(rounds[part[0]]), found[part])

    def _wait_for(self, round: int, found: Ints) -> None:
        parts = self._waiting.get(round)
        if parts is None:
            parts = self._waiting[round] = []
            heappush(self._rounds, round)
        parts.append(found)

    @property
    def next_round(self) -> int | None:
        """Return the next round that changes ranks, None if there is none."""
        return self._rounds[0] if self._rounds else None

    def settle(self) -> Batch:
        """Let the next round change ranks; return the changes of ranked rows.

        Their times are their ranks, from `FIRST` on. Rows of the last rank of all, from which
        nothing follows, are left out.
        """
        round = heappop(self._rounds)
        parts = self._waiting.pop(round)
        state = self._state
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        words, ranks, diffs, changed, old, *later = kernels.settle(
            found, round, self._limit, state.ranks, state.heads, state.entries, state.words
        )
        self._settled.append((changed, old))
        self._wait(*later)
        return Batch(words, ranks + FIRST, diffs)

    def begin_anew(self) -> None:
        """Keep only what follows from the inputs alone, from which all rounds are to come."""
        self.restore()
        old, self._state = self._state, self._state.without_ranks()
        everything = np.arange(old.count)
        places, ranks, counts = kernels.entries_of(everything, old.heads, old.entries, 0)
        self._replaced = old
        self._state.make_room(len(places))
        self._add(everything[places], ranks, counts)

    def changes(self) -> tuple[Batch, int]:
        """Return which rows came and went since the last call, at time 0.

        With them comes by how many those have changed that only the last round of all has found.
        """
        state = self._state
        if self._replaced is not None:
            changed = np.arange(state.count)
            old = np.full(state.count, NEVER, np.int64)
            old[: self._replaced.count] = self._replaced.ranks[: self._replaced.count]
        else:
            parts, self._reported = self._settled[self._reported :], len(self._settled)
            if not parts:
                return empty(self._width), 0
            changed, first = np.unique(np.concatenate([r for r, _ in parts]), return_index=True)
            old = np.concatenate([ranks for _, ranks in parts])[first]
        new = state.ranks[changed]
        diffs = (new < NEVER).astype(np.int64) - (old < NEVER).astype(np.int64)
        at_last = int((new == self._limit).sum()) - int((old == self._limit).sum())
        places = np.flatnonzero(diffs)
        words = state.words[changed[places]]
        return Batch(words, np.zeros(len(places), np.int64), diffs[places]), at_last

    # --- the end of a step

    def commit(self) -> None:
        """Keep what is staged."""
        self._dead += sum(len(changed) for changed, _ in self._settled)
        self._replaced = None
        self._forget()
        if self._dead > max(LEAST_DEAD, self._state.count // 2):
            self._renumber()

    def restore(self) -> None:
        """Return to the last commit."""
        if self._replaced is not None:
            self._state, self._replaced = self._replaced, None
        else:
            state = self._state
            for found, ranks, diffs in self._counted:
                state.make_room(len(found))
                kernels.add_counts(found, ranks, -diffs, state.heads, state.entries, state.counters)
            for changed, old in reversed(self._settled):
                state.ranks[changed] = old
        self._forget()

    def _forget(self) -> None:
        self._counted, self._settled, self._reported = [], [], 0
        self._waiting, self._rounds = {}, []

    def _renumber(self) -> None:
        """Forget the numbers of rows that are not there, if there are many."""
        state = self._state
        alive = np.flatnonzero(state.heads[: state.count] >= 0)
        self._dead = 0
        if len(alive) > state.count // 2:
            return
        self._take(
            state.words[alive], state.ranks[alive],
            *kernels.entries_of(alive, state.heads, state.entries, -1),
        )  # fmt: skip

    def _take(self, words: Words, ranks: Ints, places: Ints, of_ranks: Ints, counts: Ints) -> None:
        """Replace all by given rows with their ranks, and entries of the rows at `places`."""
        state = _State(self._width, _room(len(words)), _room(len(places)))
        state.count = len(words)
        state.words[: len(words)] = words
        state.ranks[: len(words)] = ranks
        rows.hash_keys(
            state.words[: len(words)], self._width, self._seed, state.hashes[: len(words)]
        )
        kernels.fill_table(state.hashes, state.count, state.table)
        kernels.add_counts(places, of_ranks, counts, state.heads, state.entries, state.counters)
        self._state = state

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the size."""
        yield self.size()

    def save(self, to: Writer) -> None:
        """Write the rows, their ranks, and their entries."""
        state = self._state
        alive = np.flatnonzero(state.heads[: state.count] >= 0)
        entries = kernels.entries_of(alive, state.heads, state.entries, -1)
        to.array("words", state.words[alive])
        to.array("ranks", state.ranks[alive])
        to.array("entries", np.stack(entries, 1))

    def load(self, saved: Reader) -> None:
        """Take that over."""
        words, ranks = saved.array("words", self._width), saved.array("ranks")
        entries = saved.array("entries", 3)
        if len(ranks) != len(words):
            raise Mismatch("the rows of a recursion have other ranks")
        self._take(words, ranks, *(np.ascontiguousarray(entries[:, i]) for i in range(3)))
