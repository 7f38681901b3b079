"""Ordered spines: rows by group, in order within a group, for minima, maxima and first rows."""

from dataclasses import dataclass

import numpy as np

from foreshore.compute.flow.batch import Batch, Hashes, Ints, Words
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import ordered as kernels
from foreshore.compute.flow.kernels import rows
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
        self.runs = (self._sorted(hashes, batch), *self.runs)
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
        self.runs = (merge.run(), *self.runs[2:])

    def rows_at(
        self,
        point_rows: Ints,
        point_times: Ints,
        wanted: Hashes,
        keys: Words,
        offset: int,
        limit: int,
    ) -> tuple[Ints, Words, Ints]:
        """Return rows of the points' groups, from `offset` on: points, words, multiplicities."""
        padded = (*self.runs, *(self._nothing(),) * (kernels.MOST_RUNS - len(self.runs)))
        interner = self.interner
        points, runs, places, counts = kernels.live_rows(
            point_rows, point_times, wanted, keys, self.key,
            tuple(run.hashes for run in padded),
            tuple(run.words for run in padded),
            tuple(run.times for run in padded),
            tuple(run.diffs for run in padded),
            self.texts, interner.arena, interner.starts, interner.lengths, offset, limit,
        )  # fmt: skip
        words = np.empty((len(points), self.width), np.int64)
        for number, run in enumerate(self.runs):
            here = runs == number
            words[here] = run.words[places[here]]
        return points, words, counts

    def rows_near(self, points: Points, region: Region) -> Near:
        """Return the rows of the points' groups near the changed rows of each group."""
        padded = (*self.runs, *(self._nothing(),) * (kernels.MOST_RUNS - len(self.runs)))
        interner = self.interner
        begins, ends = np.empty(len(points), np.int64), np.empty(len(points), np.int64)
        room = max(4 * len(points) + 16, 2 * self._near)
        while True:
            found, runs, places, counts = (np.empty(room, np.int64) for _ in range(4))
            size = kernels.rows_near(
                points.rows, points.times, points.hashes, points.words, self.key,
                region.lows, region.highs, region.low_words, region.before, region.after,
                tuple(run.hashes for run in padded),
                tuple(run.words for run in padded),
                tuple(run.times for run in padded),
                tuple(run.diffs for run in padded),
                self.texts, interner.arena, interner.starts, interner.lengths,
                found, runs, places, counts, begins, ends,
            )  # fmt: skip
            if size <= room:
                break
            room = size
        self._near = size
        words = np.empty((size, self.width), np.int64)
        for number, run in enumerate(self.runs):
            here = runs[:size] == number
            words[here] = run.words[places[:size][here]]
        return Near(found[:size], words, counts[:size], begins, ends)

    def _nothing(self) -> Run:
        none = np.empty(0, np.int64)
        return Run(np.empty(0, np.uint64), np.empty((0, self.width), np.int64), none, none)
