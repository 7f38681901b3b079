"""The indexes that a dataflow exports: arrangements of its output."""

from dataclasses import dataclass

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.output import IndexRows
from foreshore.compute.protocol import ArrangementStatus, IndexExport, IndexStatus, SubscribeIndex
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(slots=True)
class Index:
    """An export as an arrangement."""

    export: IndexExport
    rows: IndexRows
    since: Timestamp

    def status(self, id: GlobalId) -> IndexStatus:
        """Return the status of index `id`."""
        rows, runs, size = self.rows.size
        return IndexStatus(id, self.rows.since, self.rows.upper, rows, runs, size)


def asked(request: SubscribeIndex) -> Timestamp:
    """Return the time of the initial contents that a subscriber requests."""
    return max(request.as_of, request.lower - 1)


def arrangement_status(size: ArrangementSize, owner: GlobalId | None) -> ArrangementStatus:
    """Return the status of an arrangement of `owner`, if it belongs to no other collection."""
    object = size.object or owner
    return ArrangementStatus(
        object,
        size.operator,
        size.name,
        size.records,
        size.batches,
        size.bytes,
        size.merges,
        size.worker,
    )
