"""Looking up many rows of a table by some of its columns, as of a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.key import Words, pairs_equal
from foreshore.compute.arrange.run import Ints, Updates, concat
from foreshore.compute.keys.layout import KeyLayout
from foreshore.update import Timestamp


class Hashed(Protocol):
    """Updates that are found by the hash of some columns."""

    def matching(self, hashes: Words) -> Iterable[tuple[Updates, Ints, Ints]]:
        """Yield updates, positions in `hashes`, and places of updates that probably have them."""
        ...

    @property
    def rows(self) -> int:
        """The number of updates."""
        ...

    def parts(self) -> Sequence[Updates]:
        """Return all updates."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LookUp:
    """The rows of a moment by the columns of `layout`; may be used on any thread.

    Rows are what the updates of all `sources` add up to.
    """

    layout: KeyLayout
    sources: tuple[Hashed, ...]

    @property
    def rows(self) -> int:
        """About how many rows there are."""
        return sum(source.rows for source in self.sources)

    def scan(self, time: Timestamp) -> pa.RecordBatch:
        """Return all rows at `time`."""
        parts = [part for source in self.sources for part in source.parts()]
        past = [part.take(np.flatnonzero(part.times <= time)) for part in parts]
        if not past:
            return self.layout.nothing()
        updates = concat(past)
        every = np.arange(len(updates))
        return added_up(np.zeros(len(updates), np.int64), updates, every)[1]

    def count(self, hashes: Words) -> int:
        """Return about how many updates there are under `hashes`."""
        return sum(len(at) for source in self.sources for _, _, at in source.matching(hashes))

    def latest(self, hashes: Words) -> Timestamp:
        """Return the last time at which a row under `hashes` changed; 0 if none did."""
        found = (each for source in self.sources for each in source.matching(hashes))
        return max((int(updates.times[at].max()) for updates, _, at in found), default=0)

    def find(self, keys: Sequence[pa.Array], time: Timestamp) -> tuple[Ints, pa.RecordBatch]:
        """Return the rows at `time` under `keys`, columns, with the place of each one's key.

        Rows are in the order of the places.
        """
        layout = self.layout
        found = []
        for source in self.sources:
            for updates, places, at in source.matching(layout.hashes(keys)):
                past = updates.times[at] <= time
                if past.any():
                    found.append((places[past], updates.take(at[past])))
        if not found:
            return np.empty(0, np.int64), self.layout.nothing()
        places = np.concatenate([each for each, _ in found])
        updates = concat([each for _, each in found])
        same = np.ones(len(places), np.bool_)
        there = layout.key_of(updates.rows)
        for sought, column, type in zip(keys, there, layout.types, strict=True):
            same &= pairs_equal(column, sought.take(pa.array(places)), type)
        return added_up(places, updates, np.flatnonzero(same))


def added_up(places: Ints, updates: Updates, at: Ints) -> tuple[Ints, pa.RecordBatch]:
    """Return the rows that the updates `at` some positions add up to, in the order of places."""
    order = at[np.lexsort((updates.row_hashes[at], places[at]))]
    places, row_hashes = places[order], updates.row_hashes[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (places[1:] != places[:-1]) | (row_hashes[1:] != row_hashes[:-1])
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(updates.diffs[order], starts) if len(starts) else starts
    there = np.repeat(starts, np.maximum(sums, 0))
    return places[there], updates.rows.take(pa.array(order[there]))
