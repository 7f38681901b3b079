"""The errors that make reads of a collection fail: its own, and those of what it is derived from.

A collection that follows its inputs fails while one of them fails. A view with a schedule has its
rows from its last refresh, so it fails until the next one if an input failed then: rows may be
missing. What its inputs are later, or were between two refreshes, means nothing to it.

The refreshes of a view are known from its schedule, and from marks in its error log: steps at the
refreshes at which the errors of its inputs are not those of the refresh before. Refreshes that are
in no schedule (the first, and those of REFRESH and DOWNSTREAM) are known after a restart by their
marks. So the input's errors of such a time must be kept while the view is read (`pinned`).
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from foreshore.ids import GlobalId
from foreshore.refresh import Refresh
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.compute.controller.maintained import Dataflow

MOST_PINS = 64

Failure = tuple[str, GlobalId]  # an error with its SQLSTATE, and the collection that has it


class ReadErrors:
    """The errors of the collections that `find` finds the dataflows of."""

    def __init__(self, find: Callable[[GlobalId], "Dataflow | None"]) -> None:
        self._find = find

    def at(
        self, ids: Iterable[GlobalId], time: Timestamp, *, read_at: Timestamp | None = None
    ) -> Iterator[Failure]:
        """Yield the errors that make reads of collections at `time` fail.

        Those of earlier refreshes are left out if they are skipped at `read_at`. Raises
        CollectionCorrupted if they cannot be known.
        """
        seen: set[tuple[GlobalId, Timestamp]] = set()
        stack = [(id, time) for id in ids]
        while stack:
            id, time = stack.pop()
            dataflow = self._find(id)
            if dataflow is None or (id, time) in seen:
                continue
            seen.add((id, time))
            if (writer := dataflow.writers.get(id)) is not None:
                found = writer.errors.first(time, time + 1)
                if found is not None and (
                    read_at is None or writer.errors.fails(found[1], read_at)
                ):
                    yield found[1], id
            time = refreshed(dataflow, time)
            if time >= 0:
                stack += [(each, time) for each in dataflow.description.imports]

    def first(
        self, ids: Collection[GlobalId], lower: Timestamp, upper: Timestamp
    ) -> tuple[Timestamp, Failure] | None:
        """Return the first time in [lower, upper) at which reads fail, and the least error."""
        times = (lower, *self._changes(ids, lower + 1, upper)) if lower < upper else ()
        for time in times:
            found = min(self.at(ids, time, read_at=time), default=None)
            if found is not None:
                return time, found
        return None

    def _changes(
        self, ids: Iterable[GlobalId], lower: Timestamp, upper: Timestamp
    ) -> list[Timestamp]:
        """Return the times in [lower, upper) at which the errors of collections may change."""
        if lower >= upper:
            return []
        times: set[Timestamp] = set()
        seen: set[tuple[GlobalId, bool]] = set()
        stack = [(id, True) for id in ids]  # whether it is followed at each time
        while stack:
            id, follows = stack.pop()
            dataflow = self._find(id)
            if dataflow is None or (id, follows) in seen:
                continue
            seen.add((id, follows))
            if (writer := dataflow.writers.get(id)) is not None:
                times.update(writer.errors.changes(lower, upper, steps=follows))
            follows = follows and dataflow.description.refresh is None
            stack += [(each, follows) for each in dataflow.description.imports]
        return sorted(times)

    # --- refreshes

    def marks(
        self,
        dataflow: "Dataflow",
        stored: Refresh,
        lower: Timestamp,
        upper: Timestamp,
        *,
        initial: bool,
    ) -> list[Timestamp]:
        """Return the refreshes in [lower, upper) that need a mark.

        The view has the `stored` schedule after a restart. With `initial` it is the last refresh
        before `upper`, as of which a replica has begun.
        """
        imports, schedule = dataflow.description.imports, dataflow.description.refresh
        assert schedule is not None, dataflow.description.id
        time = schedule.at_or_after(lower)
        if initial:
            begun = dataflow.description.as_of
            time = max(schedule.at_or_before(upper - 1), begun if begun < upper else -1)
        if not 0 <= time < upper:
            return []
        changes = self._changes(imports, 0, upper)
        found: list[Timestamp] = []
        while changes and time < upper:
            before = max(stored.at_or_before(time - 1), _marked(dataflow, time - 1), *found[-1:])
            if sorted(self.at(imports, time)) != sorted(self.at(imports, before)):
                found.append(time)
            place = bisect_right(changes, time)
            if place == len(changes):
                break
            time = schedule.at_or_after(changes[place])
        return found

    def pinned(
        self, id: GlobalId, since: Timestamp, dataflows: Iterable["Dataflow"]
    ) -> set[Timestamp]:
        """Return the times before `since` as of which errors of a collection are still asked for.

        They are those of the last refreshes of the `dataflows` that read it, which are readable
        from `since` on. With more than `MOST_PINS`, as of a long chain of views with a schedule
        each, it is any time from 0 on.
        """
        readers: dict[GlobalId, list[Dataflow]] = {}
        for dataflow in dataflows:
            for read in dataflow.description.imports:
                readers.setdefault(read, []).append(dataflow)
        known: dict[GlobalId, set[Timestamp]] = {}

        def times(of: GlobalId) -> set[Timestamp]:
            if of not in known:
                known[of] = found = {since}
                for reader in readers.get(of, ()):
                    for written in reader.writers:
                        later = times(written)
                        found |= later | {refreshed(reader, time) for time in later}
                if len(found) > MOST_PINS:
                    known[of] = {0}
            return known[of]

        found = times(id)
        return {0} if 0 in found else {time for time in found if 0 <= time < since}


def refreshed(dataflow: "Dataflow", time: Timestamp) -> Timestamp:
    """Return the time as of which a dataflow reads its inputs at `time`; -1: not known.

    That is `time` itself without a schedule, and otherwise the last refresh that is known.
    """
    schedule = dataflow.description.refresh
    if schedule is None:
        return time
    return max(schedule.at_or_before(time), _marked(dataflow, time))


def _marked(dataflow: "Dataflow", time: Timestamp) -> Timestamp:
    """Return the last step of a view with a schedule at or before `time`, -1 if there is none."""
    return max((writer.errors.last_step(time) for writer in dataflow.writers.values()), default=-1)
