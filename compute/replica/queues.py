"""Queues: the updates received for the imports of a dataflow, and the windows cut from them."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.inputs import times_of
from foreshore.compute.merged_times import NONE, MergedTimes
from foreshore.ids import GlobalId
from foreshore.refresh import Refresh
from foreshore.update import Timestamp


class Part:
    """Updates, none of which is earlier than `lower`."""

    def __init__(self, lower: Timestamp, updates: pa.Table) -> None:
        self.lower = lower
        self.updates = updates
        self._times: np.ndarray | None = None  # of each update, once these are sorted
        self._distinct: np.ndarray | None = None

    @classmethod
    def ordered(cls, lower: Timestamp, updates: pa.Table) -> "Part":
        """Return a part with sorted updates; on the worker, as they may be many."""
        part = cls(lower, updates.combine_chunks())  # cutting many chunks costs more
        part.distinct()
        return part

    def times(self) -> np.ndarray:
        """Sort the updates by time if necessary, and return the times."""
        if self._times is None:
            times: np.ndarray = times_of(self.updates).to_numpy()
            if np.any(times[1:] < times[:-1]):
                order = np.argsort(times, kind="stable")
                self.updates = self.updates.take(order)
                times = times[order]
            self._times = times
        return self._times

    def distinct(self) -> np.ndarray:
        """Return the times at which there are updates, ascending."""
        if self._distinct is None:
            times = self.times()
            self._distinct = times[np.flatnonzero(np.diff(times, prepend=times[:1] - 1))]
        return self._distinct

    def cut(self, upper: Timestamp) -> tuple[pa.Table, "Part | None"]:
        """Return the updates before `upper`, and the rest as a part if there are any."""
        times, distinct = self.times(), self.distinct()
        place = int(np.searchsorted(times, upper))
        if place == self.updates.num_rows:
            return self.updates, None
        later = Part(upper, self.updates.slice(place))
        later._times = times[place:]
        later._distinct = distinct[np.searchsorted(distinct, upper) :]
        return self.updates.slice(0, place), later


class ImportQueue:
    """The updates of one import that are not in a window yet."""

    def __init__(self, upper: Timestamp) -> None:
        self.upper = upper
        self._parts: deque[Part] = deque()  # in order of time

    def feed(self, lower: Timestamp, upper: Timestamp, updates: pa.Table | None) -> None:
        """Add the updates in [lower, upper), ignoring those before `self.upper`."""
        if upper <= self.upper:
            return
        assert lower <= self.upper, f"a gap from {self.upper} to {lower}"
        if updates is not None and lower < self.upper:
            updates = updates.filter(pc.greater_equal(times_of(updates), self.upper))
        if updates is not None and updates.num_rows:
            self._parts.append(Part(max(lower, self.upper), updates))
        self.upper = upper

    def feed_part(self, part: Part | None, upper: Timestamp) -> None:
        """Add the updates in [`self.upper`, upper): those of `part`, if there are any."""
        assert self.upper <= upper
        if part is not None and part.updates.num_rows:
            assert part.lower == self.upper
            self._parts.append(part)
        self.upper = upper

    @property
    def pending(self) -> int:
        """Return the number of updates in the queue."""
        return sum(part.updates.num_rows for part in self._parts)

    def changes_before(self, upper: Timestamp) -> bool:
        """Whether there may be updates before `upper`."""
        return bool(self._parts) and self._parts[0].lower < upper

    def precede(self, part: Part) -> None:
        """On the worker: insert earlier updates at the front."""
        self._parts.appendleft(part)

    def add_refresh(self, time: Timestamp, since: Timestamp) -> None:
        """Let updates take effect at `time` too; those of a plain queue do so at once."""

    def times(self, upper: Timestamp, most: int) -> list[np.ndarray]:
        """Return the times before `upper` with updates, or the first `most` of them."""
        found: list[np.ndarray] = []
        for part in self._parts:
            if part.lower >= upper or most <= 0:
                break
            times = part.distinct()
            found.append(times[: min(np.searchsorted(times, upper), most)])
            most -= len(found[-1])
        return found

    def take(self, upper: Timestamp) -> list[pa.Table]:
        """Remove and return the updates before `upper`."""
        return self._take(upper)

    def _take(self, upper: Timestamp) -> list[pa.Table]:
        taken = []
        while self._parts and self._parts[0].lower < upper:
            part = self._parts.popleft()
            end = self._parts[0].lower if self._parts else self.upper
            updates, later = (part.updates, None) if end <= upper else part.cut(upper)
            if later is not None:
                self._parts.appendleft(later)
            taken.append(updates)
        return [table for table in taken if table.num_rows]


class ScheduledQueue(ImportQueue):
    """A queue whose updates take effect at the next refresh of a schedule.

    Updates are kept at their own times until then, as a refresh may be added.
    """

    def __init__(self, upper: Timestamp, schedule: Refresh) -> None:
        super().__init__(upper)
        self.schedule = schedule

    def add_refresh(self, time: Timestamp, since: Timestamp) -> None:
        """Let updates take effect at `time` too; all before `since` have been taken."""
        self.schedule = self.schedule.and_at(time, since)

    def _end(self, upper: Timestamp) -> Timestamp:
        """Return the time before which updates take effect before `upper`."""
        return self.schedule.at_or_before(upper - 1) + 1

    def changes_before(self, upper: Timestamp) -> bool:
        """Whether updates take effect before `upper`."""
        return super().changes_before(self._end(upper))

    def times(self, upper: Timestamp, most: int) -> list[np.ndarray]:
        """Return the refreshes before `upper` with updates, or the first `most` of them."""
        found = super().times(self._end(upper), self.pending)
        if not found:
            return []
        return [np.unique(self.schedule.round_up(np.concatenate(found)))[:most]]

    def take(self, upper: Timestamp) -> list[pa.Table]:
        """Remove and return the updates that take effect before `upper`, at their refreshes."""
        taken = []
        end = self._end(upper)
        for table in self._take(end):
            times = self.schedule.round_up(times_of(table).to_numpy())
            place = table.num_columns - 2
            taken.append(table.set_column(place, table.schema[place], pa.array(times)))
        return taken


def import_queue(upper: Timestamp, schedule: Refresh | None) -> ImportQueue:
    """Return an empty queue."""
    return ImportQueue(upper) if schedule is None else ScheduledQueue(upper, schedule)


@dataclass(frozen=True, slots=True)
class Window:
    """The next input of the engine."""

    lower: Timestamp
    upper: Timestamp
    deltas: Mapping[GlobalId, pa.Table]
    times: int | None = None  # the number of times with updates, if counted
    last: bool = True  # nothing was left in the queues
    merged: MergedTimes = NONE


def at_or_after(updates: pa.Table, lower: Timestamp) -> pa.Table:
    """Return the updates at or beyond `lower`."""
    return updates.filter(pc.greater_equal(times_of(updates), lower)) if lower else updates


def before(updates: pa.Table, upper: Timestamp) -> pa.Table:
    """Return the updates before `upper`."""
    return updates.filter(pc.less(times_of(updates), upper))
