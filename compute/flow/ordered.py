"""Ordered spines: rows by group, in order within a group, for minima, maxima and first rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import first_rows, partition_rows, rows
from foreshore.compute.flow.kernels import ordered as kernels
from foreshore.compute.flow.kernels.probing import IN_ORDER
from foreshore.compute.flow.operators.grouping import consolidated
from foreshore.compute.flow.run import Run
from foreshore.compute.flow.spine import Spine
from foreshore.compute.flow.sums import Points
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """For each point, rows of its words: the first and the last changed one of its group.

    The first one counts from the first row equal to it in `low_words` words. Read are `before` and
    `after` more rows, all later ones if that is negative.
    """

    lows: Ints
    highs: Ints
    low_words: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, eq=False)
class Near:
    """Rows of points, with multiplicities; how many are before and up to the changed ones."""

    points: Ints
    words: Words
    counts: Ints
    begins: Ints
    ends: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Following:
    """Rows of points from some row of their group on, in order.

    `rows` tells the rows of a group apart, at all of its points. `before` is how many rows of each
    point come before that row, with multiplicities.
    """

    points: Ints
    rows: Ints
    words: Words
    before: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Where groups begin and end in each run, by group and run.

    `visited` are their first points, `arrays` the addresses of the words, times and diffs of the
    `runs`, which are kept as long as these are used.
    """

    runs: tuple[Run, ...]
    visited: Ints
    begins: Ints
    ends: Ints
    arrays: Ints


EAGER = 512  # runs of fewer updates are merged at once


class OrderedSpine(Spine):
    """A spine without a tail and with few runs, which are read together."""

    ordered = True

    def __init__(
        self, key: int, texts: Ints, interner: Interner, seed: int, since: Timestamp = 0
    ) -> None:
        super().__init__([np.arange(key)], texts, interner, seed, since)
        self.key = key
        self._near = 0  # rows that were read last

    def insert(self, batch: Batch) -> None:
        """Insert updates, none of which is before `since`."""
        if len(batch):
            self.insert_hashed(self.hashes(batch.words), batch)

    def _sorted(self, hashes: Hashes, batch: Batch) -> Run:
        """Return updates as a run."""
        if len(batch) >= EAGER:  # fewer to sort, if many are equal
            batch = consolidated(batch, int(self.seed))
            hashes = self.hashes(batch.words)
        interner = self.interner
        order = rows.sort_updates(
            hashes,
            batch.words,
            batch.times,
            self.texts,
            self.key,
            interner.arena,
            interner.starts,
            interner.lengths,
        )
        return Run(
            *rows.gather_consolidated(
                order, hashes, batch.words, batch.times, batch.diffs, self.since
            )
        )

    def insert_hashed(self, hashes: Hashes, batch: Batch) -> None:
        """Insert updates with the hashes of their keys."""
        self._runs = (self._sorted(hashes, batch), *self.runs)
        while len(self.runs) > 1 and self._is_due():
            self._merge_newest()

    def _is_due(self) -> bool:
        newer, older = self.runs[:2]
        if self._merge is not None and self._merge.newer in (newer, older):
            return len(self.runs) > kernels.MOST_RUNS
        return len(self.runs) > kernels.MOST_RUNS or len(newer) + len(older) < EAGER

    def _merge_newest(self) -> None:
        """Merge the two newest runs at once."""
        self._merge = None
        newer, older = self.runs[:2]
        merge = self._merge_of(newer, older)
        while not merge.work(len(newer) + len(older)):
            continue
        self._runs = (merge.run(), *self.runs[2:])

    def rows_at(self, points: Points, offset: int, limit: int) -> tuple[Ints, Words, Ints]:
        """Return rows of the points' groups, from `offset` on: points, words, multiplicities."""
        found, runs, places, counts = kernels.live_rows(
            points.rows, points.times, points.hashes, points.words, self.key,
            *self._arrays(), *self._order(), offset, limit,
        )  # fmt: skip
        return found, self._words(runs, places), counts

    def first_rows_changed(self, points: Points, offset: int, limit: int, row: int) -> Batch:
        """Return how the rows of groups from `offset` on, at most `limit`, change between points.

        Of each row there are the words from `row` on.
        """
        groups = self._groups(points)
        room = max(3 * len(points) + 16, 2 * self._near)
        while True:
            found, runs, places, diffs = (np.empty(room, np.int64) for _ in range(4))
            size = first_rows.changed_first_rows(
                groups.visited, points.times, points.first, groups.begins, groups.ends,
                groups.arrays, *self._order(), offset, limit, found, runs, places, diffs,
            )  # fmt: skip
            if size <= room:
                break
            room = size
        self._near = size
        words = self._words(runs[:size], places[:size])[:, row:]
        return Batch(np.ascontiguousarray(words), points.times[found[:size]], diffs[:size])

    def _groups(self, points: Points) -> _Groups:
        """Return where the groups of points are in the runs, in the order of their hashes."""
        visited = np.flatnonzero(points.first)
        if len(visited) >= IN_ORDER:
            visited = visited[rows.sort_hashes(points.hashes[points.rows[visited]])[1]]
        runs = [(number, run) for number, run in enumerate(self.runs) if len(run)]
        shape = len(visited), len(self.runs)
        begins, ends = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        arrays = np.zeros((len(self.runs), 3), np.int64)
        for number, run in runs:
            first_rows.locate(
                visited, points.rows, points.hashes, points.words, self.key,
                run.hashes, run.words, run.times, run.diffs, number, begins, ends, arrays,
            )  # fmt: skip
        return _Groups(self.runs, visited, begins, ends, arrays)

    def ends(
        self, points: Points, counts: Ints, *, first: bool, last: bool
    ) -> tuple[tuple[Ints, Words], tuple[Ints, Words]]:
        """Return the first and the last rows of the points' groups: points, words.

        Those that nobody asks for are left out. Where `counts` is 0 the group has no rows.
        """
        runs, places = (np.empty((len(points), 2), np.int64) for _ in range(2))
        groups = self._groups(points)
        first_rows.group_ends(
            groups.visited, points.times, points.first, np.ascontiguousarray(counts), first, last,
            groups.begins, groups.ends, groups.arrays, *self._order(), runs, places,
        )  # fmt: skip
        return self._taken(runs[:, 0], places[:, 0]), self._taken(runs[:, 1], places[:, 1])

    def _taken(self, runs: Ints, places: Ints) -> tuple[Ints, Words]:
        """Return the numbers of the rows whose run is not -1, and their words."""
        found = np.flatnonzero(runs >= 0)
        return found, self._words(runs[found], places[found])

    def rows_near(self, points: Points, region: Region) -> Near:
        """Return the rows of the points' groups near the changed rows of each group."""
        begins, ends = np.empty(len(points), np.int64), np.empty(len(points), np.int64)
        room = max(4 * len(points) + 16, 2 * self._near)
        while True:
            found, runs, places, counts = (np.empty(room, np.int64) for _ in range(4))
            size = kernels.rows_near(
                points.rows, points.times, points.hashes, points.words, self.key,
                region.lows, region.highs, region.low_words, region.before, region.after,
                *self._arrays(), *self._order(), found, runs, places, counts, begins, ends,
            )  # fmt: skip
            if size <= room:
                break
            room = size
        self._near = size
        words = self._words(runs[:size], places[:size])
        return Near(found[:size], words, counts[:size], begins, ends)

    def extent(self, points: Points, lows: Ints, highs: Ints) -> tuple[int, int]:
        """Return how many updates there are from rows `lows` to `highs` of the points' words.

        Those are the first and the last changed ones of each point's group. Also returns how many
        updates all groups have.
        """
        first = self._extents(points, lows, self.width, 0)[1]
        last = self._extents(points, highs, self.width, 0)[1]
        begins, _, ends, _ = self._extents(points, points.rows, self.key, 0)
        return int((last - first).sum()), int((ends - begins).sum())

    def _extents(
        self, points: Points, lows: Ints, low_words: int, before: int
    ) -> tuple[Ints, Ints, Ints, int]:
        """Return where groups begin, have the row of `following`, and end, by group and run.

        Also returns how many rows there are at most at all points.
        """
        shape = int(np.count_nonzero(points.first)), kernels.MOST_RUNS
        begins, middles, ends = (np.empty(shape, np.int64) for _ in range(3))
        room = partition_rows.find_extents(
            points.rows, points.times, points.first, points.hashes, points.words, self.key,
            lows, low_words, before, low_words == self.key,
            *self._arrays(), *self._order(), begins, middles, ends,
        )  # fmt: skip
        return begins, middles, ends, room

    def following(self, points: Points, lows: Ints, low_words: int, before: int) -> Following:
        """Return the rows of each point's group that are not before a row.

        That is `lows` of the points' words, compared in `low_words` words: of its own length, or
        those of the key, which gives all rows of the group. `before` rows more are read before it.
        """
        begins, middles, ends, room = self._extents(points, lows, low_words, before)
        longest = int((ends - begins).sum(axis=1).max(initial=0))
        found, rows, counts = (np.empty(room, np.int64) for _ in range(3))
        copied = np.empty((room, self.width), np.int64)
        passed = np.empty(len(points), np.int64)
        size = partition_rows.take_rows(
            points.times, points.first, begins, middles, ends, longest,
            *self._arrays()[1:], *self._order(), found, rows, counts, copied, passed,
        )  # fmt: skip
        found, rows, counts, copied = (each[:size] for each in (found, rows, counts, copied))
        if not (counts == 1).all():
            found, rows = np.repeat(found, counts), np.repeat(rows, counts)
            copied = np.repeat(copied, counts, axis=0)
        return Following(found, rows, copied, passed)

    def _arrays(self) -> tuple[tuple[Any, ...], ...]:
        """Return the hashes, words, times and diffs of as many runs as kernels read."""
        none = np.empty(0, np.int64)
        nothing = Run(np.empty(0, np.uint64), np.empty((0, self.width), np.int64), none, none)
        runs = (*self.runs, *(nothing,) * (kernels.MOST_RUNS - len(self.runs)))
        return (
            tuple(run.hashes for run in runs),
            tuple(run.words for run in runs),
            tuple(run.times for run in runs),
            tuple(run.diffs for run in runs),
        )

    def _order(self) -> tuple[Any, ...]:
        """Return what kernels need to compare rows."""
        interner = self.interner
        return self.texts, interner.arena, interner.starts, interner.lengths

    def _words(self, runs: Ints, places: Ints) -> Words:
        """Return the rows at some places of runs, given by their numbers."""
        words = np.empty((len(runs), self.width), np.int64)
        for number, run in enumerate(self.runs):
            here = runs == number
            words[here] = run.words[places[here]]
        return words
