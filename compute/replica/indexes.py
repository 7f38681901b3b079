"""The indexes that a dataflow exports: arrangements of its output."""

from dataclasses import dataclass

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.output import IndexRows
from foreshore.compute.protocol import ArrangementStatus, IndexExport
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(slots=True)
class Index:
    """An export as an arrangement."""

    export: IndexExport
    rows: IndexRows
    since: Timestamp


def arrangement_status(size: ArrangementSize, owner: GlobalId | None) -> ArrangementStatus:
    """Return the status of an arrangement of `owner`, if it belongs to no other collection."""
    object = size.object or owner
    return ArrangementStatus(
        object, size.operator, size.name, size.records, size.batches, size.bytes, size.merges
    )
