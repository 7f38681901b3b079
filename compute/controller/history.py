"""History: what a replica has to be told to be where the others are, as few commands as do.

The controller notes what it commands; `commands` are those that still matter. A dataflow that was
dropped leaves nothing behind, and one whose outputs may be compacted begins as of the later time,
so that the history is no longer than what is alive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from foreshore.compute.protocol import (
    AllowCompaction,
    DataflowDescription,
    Follow,
    IndexExport,
)
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(slots=True)
class Entry:
    """A dataflow that is alive: its exports that are, and from when each has to be readable."""

    description: DataflowDescription
    sinces: dict[GlobalId, Timestamp]

    @property
    def since(self) -> Timestamp:
        """From when the inputs have to be readable."""
        return min(self.sinces.values())

    def current(self) -> DataflowDescription:
        """Return the description for a replica that begins now."""
        return msgspec.structs.replace(
            self.description,
            as_of=self.since,
            exports=tuple(e for e in self.description.exports if e.id in self.sinces),
        )


@dataclass(slots=True)
class History:
    """What is alive in one cluster."""

    dataflows: dict[GlobalId, Entry] = field(default_factory=dict)
    exporters: dict[GlobalId, Entry] = field(default_factory=dict)
    follows: dict[GlobalId, Follow] = field(default_factory=dict)

    def create(self, description: DataflowDescription) -> Entry:
        """Note that a dataflow is created."""
        assert description.id not in self.dataflows, description.id
        assert description.exports, description.id
        entry = Entry(description, {e.id: description.as_of for e in description.exports})
        self.dataflows[description.id] = entry
        for export in description.exports:
            assert export.id not in self.exporters, export.id
            self.exporters[export.id] = entry
        return entry

    def allow_compaction(self, id: GlobalId, since: Timestamp) -> bool:
        """Note from when export `id` is read; return whether that is news."""
        entry = self.exporters[id]
        if since <= entry.sinces[id]:
            return False
        entry.sinces[id] = since
        return True

    def drop(self, id: GlobalId) -> bool:
        """Note that export `id` is read no more; return whether that ends its dataflow."""
        entry = self.exporters.pop(id)
        del entry.sinces[id]
        if entry.sinces:
            return False
        del self.dataflows[entry.description.id]
        return True

    def compactions(self) -> Iterator[AllowCompaction]:
        """Yield for indexes that may be compacted beyond their dataflow's as_of that they may."""
        for entry in self.dataflows.values():
            for export in entry.description.exports:
                since = entry.sinces.get(export.id)
                if since is not None and since > entry.since and isinstance(export, IndexExport):
                    yield AllowCompaction(export.id, since)
