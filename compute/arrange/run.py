"""Runs: the immutable sorted sets of updates that make up an arrangement.

A run [lower, upper) holds updates sorted by (key hash, row hash, time): the rows as one Arrow
record batch with single-chunk columns, and the hashes, times and diffs as NumPy arrays. Equal
updates are combined. Times before `since` are moved to it. Runs never change, so readers need no
lock.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.compute.arrange.key import Words
from foreshore.update import Timestamp

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)  # without slots, for the size that is measured once
class Updates:
    """Updates in columns, in any order, with equal positions in all columns."""

    rows: pa.RecordBatch
    key_hashes: Words
    row_hashes: Words
    times: Ints
    diffs: Ints

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.times)

    def slice(self, start: int, stop: int) -> "Updates":
        """Return the updates from `start` to before `stop`, sharing memory."""
        return Updates(
            self.rows.slice(start, stop - start),
            self.key_hashes[start:stop],
            self.row_hashes[start:stop],
            self.times[start:stop],
            self.diffs[start:stop],
        )

    def take(self, indices: Any, diffs: Ints | None = None) -> "Updates":
        """Return the updates at `indices`, with new `diffs` if given."""
        return Updates(
            self.rows.take(pa.array(indices)),
            self.key_hashes[indices],
            self.row_hashes[indices],
            self.times[indices],
            self.diffs[indices] if diffs is None else diffs,
        )

    def at(self, time: Timestamp) -> "Updates":
        """Return the updates with all times set to `time`."""
        times = np.full(len(self), time, np.int64)
        return Updates(self.rows, self.key_hashes, self.row_hashes, times, self.diffs)

    @cached_property
    def nbytes(self) -> int:
        """Return the size of the updates in memory."""
        return int(self.rows.nbytes) + 32 * len(self)


def concat(parts: list[Updates]) -> Updates:
    """Return the updates of all `parts`, at least one."""
    if len(parts) == 1:
        return parts[0]
    return Updates(
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.key_hashes for part in parts]),
        np.concatenate([part.row_hashes for part in parts]),
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.diffs for part in parts]),
    )


def sort_and_consolidate(updates: Updates, since: Timestamp) -> Updates:
    """Return consolidated updates in a run's order, with times moved to `since`."""
    times = np.maximum(updates.times, since)
    order = np.lexsort((times, updates.row_hashes, updates.key_hashes))
    keys, rows, times = updates.key_hashes[order], updates.row_hashes[order], times[order]
    diffs = updates.diffs[order]
    new = np.empty(len(order), np.bool_)
    new[:1] = True
    new[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1]) | (times[1:] != times[:-1])
    starts = np.flatnonzero(new)
    if len(starts) < len(order):
        diffs = np.add.reduceat(diffs, starts)
    else:
        starts = np.arange(len(order))
    left = np.flatnonzero(diffs)
    if len(left) < len(starts):
        starts, diffs = starts[left], diffs[left]
    picked = order[starts]
    if len(picked) == len(updates) and bool(np.all(picked[1:] > picked[:-1])):
        batch = updates.rows  # already sorted
    else:
        batch = updates.rows.take(pa.array(picked))
    return Updates(batch, keys[starts], rows[starts], times[starts], diffs)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sorted, consolidated updates with lower <= time < upper, except those moved to since."""

    updates: Updates
    lower: Timestamp
    upper: Timestamp
    since: Timestamp
    positive: bool  # no diff is negative
    latest: Timestamp  # no time is later

    @classmethod
    def of(cls, updates: Updates, lower: Timestamp, upper: Timestamp, since: Timestamp) -> "Run":
        """Return a run of sorted and consolidated `updates`."""
        some = bool(len(updates))
        return cls(
            updates,
            lower,
            upper,
            since,
            not some or bool(updates.diffs.min() > 0),
            int(updates.times.max()) if some else 0,
        )

    def __len__(self) -> int:
        """Return the number of updates."""
        return len(self.updates)

    def range_of(self, key_hash: np.uint64) -> tuple[int, int]:
        """Return where the updates of keys with this hash begin and end."""
        hashes = self.updates.key_hashes
        start = int(hashes.searchsorted(key_hash))
        if start == len(hashes) or hashes[start] != key_hash:
            return start, start
        if start + 1 == len(hashes) or hashes[start + 1] != key_hash:
            return start, start + 1
        return start, int(hashes.searchsorted(key_hash, "right"))

    def check(self) -> None:
        """Assert the run's invariants."""
        u = self.updates
        assert len(u.rows) == len(u.key_hashes) == len(u.row_hashes) == len(u.times) == len(u.diffs)
        keys = list(
            zip(u.key_hashes.tolist(), u.row_hashes.tolist(), u.times.tolist(), strict=True)
        )
        assert keys == sorted(set(keys)), "not sorted or not consolidated"
        assert np.all(u.diffs != 0)
        assert not len(u) or self.since <= int(u.times.min())
        assert not len(u) or int(u.times.max()) <= max(self.latest, self.since)
