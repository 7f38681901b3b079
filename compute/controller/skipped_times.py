"""Skipped times: an index that is behind takes all changes that wait together.

    reached     the time before which a replica has an index now
    skip        let replicas merge all times from there on and before another; nobody reads them
    at_or_after the first time that can be read from a given one on

The caller knows who reads: it asks for times that no transaction holds. Peeks that wait, and
streams, are known here. A mirror, which only makes reads faster, is dropped when it stands in the
way. A time that is skipped once is never read, though some replica may know it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.mirror import Mirror
from foreshore.compute.merged_times import Range, at_or_after
from foreshore.compute.protocol import MergeTimes
from foreshore.errors import Conflict, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

BEHIND_MS = 1_000  # the least range that is worth while


@dataclass(frozen=True, slots=True)
class SkippedTimes:
    """The skipped times of the indexes that `exporters` maintain."""

    exporters: Mapping[GlobalId, Dataflow]
    _ranges: dict[GlobalId, tuple[Range, ...]] = field(default_factory=dict)

    def __getitem__(self, id: GlobalId) -> tuple[Range, ...]:
        """Return the ranges of skipped times of an index, in order; they may overlap.

        Anything else has none.
        """
        return self._ranges.get(id, ())

    def reached(self, id: GlobalId) -> Timestamp:
        """Return the time before which a replica has the index now, 0 if none has it."""
        replicas = self.exporters[id].replicas
        return max((replica.uppers.get(id, 0) for replica in replicas), default=0)

    def skip(self, id: GlobalId, lower: Timestamp, upper: Timestamp) -> Timestamp:
        """Let `id` skip the times from `lower` on and before `upper`, or an earlier one.

        Nobody may read these. Returns the first time that is not skipped: `lower` if there is a
        reason to skip none.
        """
        dataflow = self.exporters[id]
        for replica in dataflow.replicas:
            if dataflow.description.id in replica.failing:
                return lower  # it stands still for another reason
        streams = [stream for stream in dataflow.streams if not stream.failed]
        mirrors = [stream for stream in streams if isinstance(stream, Mirror)]
        if len(mirrors) < len(streams):
            return lower  # a subscriber gets each change
        for mirror in mirrors:
            upper = min([upper, *(time for time in mirror.awaited if time >= lower)])
        for asked in dataflow.cluster.peeks.values():
            read = (asked.peek.index, *asked.peek.indexes.values())
            if id in read and asked.peek.as_of >= lower:
                upper = min(upper, asked.peek.as_of)
        if upper - lower < BEHIND_MS:
            return lower
        for mirror in mirrors:
            mirror.fail(ObjectNotInPrerequisiteState("its index is behind"))
        # Those that go beyond are kept: a replica may have merged them, or still have to.
        kept = [each for each in self[id] if not lower <= each[0] < each[1] <= upper]
        self._ranges[id] = tuple(sorted((*kept, (lower, upper))))
        dataflow.cluster.send(MergeTimes(id, lower, upper))
        return upper

    def check(self, ids: Iterable[GlobalId], time: Timestamp) -> None:
        """Raise Conflict if one of `ids` is not readable at a time that it has skipped."""
        for id in ids:
            if (later := at_or_after(self[id], time)) > time:
                raise Conflict(
                    "could not serialize access: an index was behind and has skipped the time read",
                    detail=f"It can be read from {later} on.",
                    hint="Run the transaction again.",
                )

    def check_onwards(self, id: GlobalId, time: Timestamp) -> None:
        """Raise Conflict unless an index is exact at a time and at all later ones."""
        last = self.exact_since(id) - 1  # that may be skipped
        self.check([id], max(time, last))

    def exact_since(self, id: GlobalId) -> Timestamp:
        """Return the time from which on an index skips none."""
        return max((upper for _, upper in self[id]), default=0)

    def compact(self, id: GlobalId, since: Timestamp) -> None:
        """Forget the ranges before the time from which an index is readable."""
        if id in self._ranges:
            self._ranges[id] = tuple(each for each in self[id] if each[1] > since)

    def forget(self, id: GlobalId) -> None:
        """Forget a dropped index."""
        self._ranges.pop(id, None)
