"""History: the fewest commands that bring a new replica up to date.

The controller records its commands; `commands` are those that still matter. A dropped dataflow
leaves nothing behind, and one whose outputs may be compacted starts at the later time. So the
history grows only with the live dataflows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from foreshore.compute.protocol import (
    AllowCompaction,
    DataflowDescription,
    IndexExport,
    SubscribeIndex,
)
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(slots=True)
class Entry:
    """A live dataflow: its live exports, and the time from which each has to be readable."""

    description: DataflowDescription
    sinces: dict[GlobalId, Timestamp]

    @property
    def since(self) -> Timestamp:
        """Return the time from which the inputs have to be readable."""
        return min(self.sinces.values())

    def current(self) -> DataflowDescription:
        """Return the description for a replica that starts now."""
        return msgspec.structs.replace(
            self.description,
            as_of=self.since,
            exports=tuple(e for e in self.description.exports if e.id in self.sinces),
        )


@dataclass(slots=True)
class History:
    """The live dataflows of one cluster."""

    dataflows: dict[GlobalId, Entry] = field(default_factory=dict)
    exporters: dict[GlobalId, Entry] = field(default_factory=dict)
    follows: dict[GlobalId, SubscribeIndex] = field(default_factory=dict)

    def create(self, description: DataflowDescription) -> Entry:
        """Record that a dataflow was created."""
        assert description.id not in self.dataflows, description.id
        assert description.exports, description.id
        entry = Entry(description, {e.id: description.as_of for e in description.exports})
        self.dataflows[description.id] = entry
        for export in description.exports:
            assert export.id not in self.exporters, export.id
            self.exporters[export.id] = entry
        return entry

    def allow_compaction(self, id: GlobalId, since: Timestamp) -> bool:
        """Record the earliest time at which export `id` is read; return whether it advanced."""
        entry = self.exporters[id]
        if since <= entry.sinces[id]:
            return False
        entry.sinces[id] = since
        return True

    def drop(self, id: GlobalId) -> bool:
        """Record that export `id` was dropped; return whether that ends its dataflow."""
        entry = self.exporters.pop(id)
        del entry.sinces[id]
        if entry.sinces:
            return False
        del self.dataflows[entry.description.id]
        return True

    def compactions(self) -> Iterator[AllowCompaction]:
        """Yield AllowCompaction for indexes compacted beyond their dataflow's as_of."""
        for entry in self.dataflows.values():
            for export in entry.description.exports:
                since = entry.sinces.get(export.id)
                if since is not None and since > entry.since and isinstance(export, IndexExport):
                    yield AllowCompaction(export.id, since)
