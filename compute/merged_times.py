"""Merged times: times at which nobody reads an index that is behind, so it takes them together.

The updates in a range of times `lower <= t < upper` may be put out at `upper`: before it the index
is not read, and from there on it is exact. So many commits that wait cost as much as one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foreshore.update import Timestamp

Times = npt.NDArray[np.int64]
Range = tuple[Timestamp, Timestamp]


@dataclass(frozen=True, slots=True)
class MergedTimes:
    """Ranges of merged times, in order; they may overlap."""

    ranges: tuple[Range, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.ranges)

    def moved(self, times: Times, upper: Timestamp) -> Times:
        """Return the times, all of a window that ends before `upper`, with merged ones moved.

        A range that goes beyond the window is moved to its last time.
        """
        for lower, end in self.ranges:
            end = min(end, upper - 1)
            times = np.where((lower <= times) & (times < end), end, times)
        return times

    def end(self, upper: Timestamp) -> Timestamp:
        """Return the first time from which on a window before `upper` is exact; 0 for all of it."""
        ends = (min(end, upper - 1) for lower, end in self.ranges if lower < upper)
        return max(ends, default=0)

    def with_range(self, lower: Timestamp, upper: Timestamp) -> "MergedTimes":
        """Return these and one more range, which replaces an earlier one with the same `lower`."""
        others = tuple(each for each in self.ranges if each[0] != lower)
        return MergedTimes((*others, (lower, upper)))

    def beyond(self, frontier: Timestamp) -> "MergedTimes":
        """Return those ranges that go beyond `frontier`."""
        return MergedTimes(tuple(each for each in self.ranges if each[1] > frontier))


NONE = MergedTimes()


def at_or_after(ranges: Iterable[Range], time: Timestamp) -> Timestamp:
    """Return the first time from `time` on that is in none of the ranges, which are in order."""
    for lower, upper in ranges:
        if lower <= time < upper:
            time = upper
    return time
