"""Merges: two neighbouring runs of a spine become one, a part at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Hashes, Ints
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import probing
from foreshore.compute.flow.run import Index, Places, Run
from foreshore.update import Timestamp


class Merge:
    """The merge of two neighbouring runs: of their updates first, then index by index.

    Indexes that were read in neither are computed when they are read.
    """

    def __init__(
        self,
        newer: Run,
        older: Run,
        since: Timestamp,
        texts: Ints,
        interner: Interner,
        seed: np.uint64,
        *,
        keys: Sequence[Ints],
        ordered: bool,
    ) -> None:
        room, width = len(newer) + len(older), newer.words.shape[1]
        pairs = zip(newer.indexes, older.indexes, strict=True)
        # What was read in one of both will be read again.
        self._read = [a.is_made or b.is_made for a, b in pairs]
        traced = room if any(self._read) else 0
        self.newer, self.older, self.since = newer, older, since
        self._keys = tuple(keys[1:])  # of the indexes
        self._texts, self._interner, self._seed, self._ordered = texts, interner, seed, ordered
        self.hashes = np.empty(room, np.uint64)
        self.words = np.empty((room, width), np.int64)
        self.times = np.empty(room, np.int64)
        self.diffs = np.empty(room, np.int64)
        self.moved = np.empty(traced, np.int32)
        self.origins = np.empty(traced, np.int32)
        self.rows = (0, 0, 0)  # the places in both runs, and the number of updates put out
        self.indexes: list[tuple[Hashes, Places] | None] = []  # None: computed when it is read
        self.at = (0, 0, 0)  # the same of the index under way
        self._hashes = np.empty(traced, np.uint64)
        self._places = np.empty(traced, np.int32)

    def work(self, budget: int) -> bool:
        """Do a part of it; return whether it is done."""
        a, b = self.newer, self.older
        if self.rows[0] < len(a) or self.rows[1] < len(b):
            interner = self._interner
            self.rows = probing.merge_runs(
                a.hashes, a.words, a.times, a.diffs, b.hashes, b.words, b.times, b.diffs,
                self._ordered, self._seed,
                self._texts, interner.arena, interner.starts, interner.lengths,
                self.since, *self.rows, budget,
                self.hashes, self.words, self.times, self.diffs, self.moved, self.origins,
            )  # fmt: skip
        elif len(self.indexes) < len(a.indexes):
            self._work_at_index(budget)
        return (
            self.rows[0] == len(a)
            and self.rows[1] == len(b)
            and len(self.indexes) == len(a.indexes)
        )

    def _work_at_index(self, budget: int) -> None:
        number = len(self.indexes)
        if not self._read[number]:
            self.indexes.append(None)
            return
        a, b = self.newer.indexes[number], self.older.indexes[number]
        self.at = probing.merge_indexes(
            a.hashes, a.places, b.hashes, b.places, len(self.newer),
            self.moved, self.origins, self.kept, *self.at, budget, self._hashes, self._places,
        )  # fmt: skip
        i, j, size = self.at
        if i == len(self.newer) and j == len(self.older):
            self.indexes.append((self._hashes[:size].copy(), self._places[:size].copy()))
            self.at = (0, 0, 0)

    @property
    def kept(self) -> int:
        """Return how many updates remain, once the runs are merged."""
        size = self.rows[2]
        return size - 1 if size and self.diffs[size - 1] == 0 else size

    def run(self) -> Run:
        """Return the result."""
        kept = self.kept
        whole = (self.hashes, self.words, self.times, self.diffs)
        parts: list[Any] = [each[:kept] for each in whole]
        if kept < len(self.hashes) // 2:
            parts = [part.copy() for part in parts]
        indexes = tuple(
            Index(parts[1], key, self._seed)
            if made is None
            else Index.of(parts[1], key, self._seed, *made)
            for key, made in zip(self._keys, self.indexes, strict=True)
        )
        return Run(parts[0], parts[1], parts[2], parts[3], indexes)
