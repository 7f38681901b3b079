"""Reconciliation: what a replica keeps of its work when a controller connects to it anew.

The controller sends its whole history, up to `InitializationComplete`. A dataflow that runs is
kept if the history describes the same one, if what it exports is all in indexes, whose contents
are here, and if it can be read from the history's `as_of` on; the snapshots that came with the new
description then bring its imports up to date. Sinks and subscriptions are begun again, as nobody
knows how much of what they sent has arrived. Everything else is dropped, and of another database
all: a restored one has the same ids and times, and may have other rows at them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from foreshore.compute.protocol import DataflowDescription, IndexExport
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.inputs import Contents
from foreshore.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Wanted:
    """A dataflow of the history, with what came with it."""

    description: DataflowDescription
    imports: Mapping[GlobalId, Contents]
    persisted: Mapping[GlobalId, Contents]


def fits(running: DataflowState, wanted: Wanted) -> bool:
    """Whether the running dataflow can go on as the wanted one."""
    old = msgspec.structs.replace(running.description, as_of=0)
    new = msgspec.structs.replace(wanted.description, as_of=0)
    as_of = wanted.description.as_of
    return (
        old == new
        and running.state == "running"
        and not running.dropped
        and len(running.exports) == len(new.exports)
        and all(isinstance(export, IndexExport) for export in new.exports)
        and all(index.rows.since <= as_of for index in running.indexes.values())
        and all(
            contents.snapshot.since <= running.queues[id].upper
            for id, contents in wanted.imports.items()
        )
    )


def missed(running: DataflowState, wanted: Wanted) -> Mapping[GlobalId, pa.Table | None]:
    """Read, on a thread, what a kept dataflow's imports lack of the snapshots.

    Nothing may be fed to it meanwhile.
    """
    found: dict[GlobalId, pa.Table | None] = {}
    for id, contents in wanted.imports.items():
        upper = running.queues[id].upper
        if contents.snapshot.upper > upper:
            tables = contents.after(upper - 1)
            found[id] = pa.concat_tables(tables) if tables else None
    return found


def catch_up(
    running: DataflowState, wanted: Wanted, missed: Mapping[GlobalId, pa.Table | None]
) -> None:
    """Bring the imports of a kept dataflow up to the snapshots' uppers."""
    for id, updates in missed.items():
        queue = running.queues[id]
        queue.feed(queue.upper, wanted.imports[id].snapshot.upper, updates)
