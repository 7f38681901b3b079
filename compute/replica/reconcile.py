"""Reconciliation: what a replica keeps when a controller reconnects.

The controller sends its whole history, up to `InitializationComplete`. A running dataflow is kept
if the history describes the same one, if all its exports are indexes, whose contents are here, and
if it is readable from the history's `as_of` on. The snapshots that came with the new description
then bring its imports up to date. Sinks and subscriptions are started again, because it is not
known which of their messages arrived. All other dataflows are dropped. For another database
everything is dropped: a restored database has the same ids and times, but may have other rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from foreshore.compute.inputs import Contents
from foreshore.compute.protocol import DataflowDescription, IndexExport
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.queues import Part
from foreshore.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Wanted:
    """A dataflow of the history, with its snapshots, and the number of its command."""

    description: DataflowDescription
    imports: Mapping[GlobalId, Contents]
    persisted: Mapping[GlobalId, Contents]
    number: int


def fits(dataflow: DataflowState, wanted: Wanted) -> bool:
    """Whether the running dataflow can continue as the wanted one."""
    old = msgspec.structs.replace(dataflow.description, as_of=0)
    new = msgspec.structs.replace(wanted.description, as_of=0)
    as_of = wanted.description.as_of
    return (
        old == new
        and dataflow.state == "running"
        and not dataflow.dropped
        and len(dataflow.exports) == len(new.exports)
        and all(isinstance(export, IndexExport) for export in new.exports)
        and all(index.rows.since <= as_of for index in dataflow.indexes.values())
        and dataflow.exact_from <= as_of
        and all(
            contents.snapshot.since <= dataflow.queues[id].upper
            for id, contents in wanted.imports.items()
        )
    )


def missed(dataflow: DataflowState, wanted: Wanted) -> Mapping[GlobalId, Part | None]:
    """Read and sort, on a thread, what the imports of a kept dataflow lack compared to snapshots.

    Nothing may be fed to it meanwhile.
    """
    found: dict[GlobalId, Part | None] = {}
    for id, contents in wanted.imports.items():
        upper = dataflow.queues[id].upper
        if contents.snapshot.upper > upper:
            tables = contents.after(upper - 1)
            found[id] = Part.ordered(upper, pa.concat_tables(tables)) if tables else None
    return found


def catch_up(
    dataflow: DataflowState, wanted: Wanted, missed: Mapping[GlobalId, Part | None]
) -> None:
    """Advance the imports of a kept dataflow to the snapshots' uppers."""
    for id, part in missed.items():
        dataflow.queues[id].feed_part(part, wanted.imports[id].snapshot.upper)
