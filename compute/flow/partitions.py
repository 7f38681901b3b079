"""Rows in order within partitions: their peers, and the frames of each.

All rows are in arrays, one partition after the other. A frame is a list of *parts*, disjoint ranges
of rows in order, as arrays with the first row of each and the one after the last.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foreshore.compute.flow.batch import Ints, Words
from foreshore.expr.ir import Frame, FrameBound

Part = tuple[Ints, Ints]
# Of the bound of a frame: where it is for each row, for offsets from the value of the key.
Distance = Callable[[FrameBound, bool], Ints]
Count = Callable[[FrameBound], int]


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """For each row, the first row of its partition and of its peers, and the rows after them."""

    partition: Ints  # its number
    rows: Ints
    start: Ints
    end: Ints
    first_peer: Ints
    after_peers: Ints
    group: Ints  # number of the group of peers, over all partitions
    before: Ints  # rows of the partition before those that are here
    groups_before: Ints  # groups of peers, too

    @classmethod
    def of(
        cls, partition: Ints, keys: Words, before: Ints, all_groups: Ints | None = None
    ) -> "Partitions":
        """Return the partitions of rows, given their numbers and the words of the order's keys.

        By number, `before` are the rows of a partition before those that are here, and `all_groups`
        its groups of peers, if not all of them are here.
        """
        count = len(partition)
        rows = np.arange(count)
        begins = np.ones(count, np.bool_)
        begins[1:] = partition[1:] != partition[:-1]
        differs = begins.copy()
        differs[1:] |= (keys[1:] != keys[:-1]).any(axis=1)
        start, end = _ranges(begins)
        first_peer, after_peers = _ranges(differs)
        group = np.cumsum(differs) - 1
        groups_before = np.zeros(len(before), np.int64)
        if all_groups is not None:
            here = np.bincount(partition[differs], minlength=len(before))
            groups_before = all_groups - here
        return cls(
            partition, rows, start, end, first_peer, after_peers, group,
            before[partition], groups_before[partition],
        )  # fmt: skip

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def numbers(self) -> Ints:
        """Return the number of each row in its partition, from 1."""
        return self.rows - self.start + 1 + self.before

    def ranks(self) -> Ints:
        """Return one more than the rows before the first peer of each row."""
        return self.first_peer - self.start + 1 + self.before

    def dense_ranks(self) -> Ints:
        """Return the number of each row's group of peers, from 1."""
        return self.group - self.group[self.start] + 1 + self.groups_before

    # --- frames

    def frame(self, frame: Frame, count: Count, distance: Distance) -> list[Part]:
        """Return the parts of the frame of each row."""
        low, high = self.start, self.end
        if frame.start is not None:
            low = self._bound(frame, frame.start, count, distance, is_start=True)
        if frame.end is not None:
            high = self._bound(frame, frame.end, count, distance, is_start=False)
        low = np.clip(low, self.start, self.end)
        high = np.maximum(np.clip(high, self.start, self.end), low)
        return self._without(low, high, frame.exclude)

    def _bound(
        self, frame: Frame, bound: FrameBound, count: Count, distance: Distance, *, is_start: bool
    ) -> Ints:
        """Return the first row of the frame, or the one after its last."""
        if frame.unit == "range" and bound.offset is not None:
            return distance(bound, is_start)
        sign = -1 if bound.side == "preceding" else 1
        offset = sign * count(bound)
        if frame.unit == "rows":
            return self.rows + offset + (not is_start)
        edges = self.first_peer if is_start else self.after_peers
        if not offset:
            return edges
        groups = self.group + offset
        first, last = self.group[self.start], self.group[self.end - 1]
        inside = np.clip(groups, first, last)
        of_group = np.zeros(int(self.group[-1]) + 1 if len(self) else 0, np.int64)
        of_group[self.group] = edges
        found = of_group[inside]
        found = np.where(groups < first, self.start, found)
        return np.where(groups > last, self.end, found)

    def _without(self, low: Ints, high: Ints, exclude: str) -> list[Part]:
        """Return the range of each row without what it excludes."""
        match exclude:
            case "nothing":
                return [(low, high)]
            case "current row":
                gap = self.rows, self.rows + 1
            case _:
                gap = self.first_peer, self.after_peers
        before = low, np.clip(gap[0], low, high)
        after = np.clip(gap[1], low, high), high
        if exclude != "ties":
            return [before, after]
        own = (low <= self.rows) & (self.rows < high)
        at = np.where(own, self.rows, low)
        return [before, (at, at + own), after]


def _ranges(begins: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Part:
    """Return for each row the first of its range and the row after it, given the first rows."""
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(begins))
    return np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)
