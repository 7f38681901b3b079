"""Hydration: the snapshots from which replicas start dataflows and answer peeks."""

from collections.abc import Callable, Iterable

from foreshore.compute.controller.cluster import Prepared, prepare
from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.protocol import DataflowDescription, InputSnapshot
from foreshore.ids import GlobalId
from foreshore.storage.controller import (
    ReadCapability,
    Snapshot,
    StorageController,
    WriteCapability,
)
from foreshore.update import Timestamp, encode_schema

Capabilities = Callable[[GlobalId], tuple[ReadCapability, WriteCapability]]


def take_snapshots(
    storage: StorageController, reads: Iterable[tuple[ReadCapability, Timestamp]]
) -> list[Snapshot]:
    """Return snapshots as of times; if one fails, release those before it."""
    taken: list[Snapshot] = []
    try:
        for read, as_of in reads:
            taken.append(storage.snapshot(read, as_of))
    except BaseException:
        for snapshot in taken:
            snapshot.release()
        raise
    return taken


def hydration_snapshots(
    storage: StorageController,
    capabilities: Capabilities,
    dataflow: Dataflow,
    description: DataflowDescription,
) -> tuple[Prepared, Prepared]:
    """Return the snapshots from which a replica hydrates a dataflow now.

    These are snapshots of its imports, and of the shards that it has to correct.
    """
    reads = [(dataflow.holds[id], description.as_of) for id in description.imports]
    fresh: list[InputSnapshot] = []
    for shard, writer in dataflow.writers.items():
        if writer.corrected and description.refresh is None:
            continue
        upper = storage.upper(shard)
        if upper == 0:
            schema = encode_schema(storage.schema(shard))
            fresh.append(InputSnapshot(shard, 0, 0, (), 0, schema))
        else:
            read, _ = capabilities(shard)
            reads.append((read, min(upper - 1, max(read.frontier, description.as_of))))
    taken, imports = take_snapshots(storage, reads), len(description.imports)
    snapshots, messages, tables = prepare(taken[imports:])
    return prepare(taken[:imports]), (snapshots, (*messages, *fresh), tables)
