"""Resuming: a dataflow begins in a saved state, and reads only the updates since then.

It must be the same dataflow, with the same plan and exports. Its inputs must be readable from the
time before the saved state's upper on, so that no earlier update is moved beyond it, and go as far.
The output before the saved state's upper was sent by another process, and a plan's output follows
from its inputs. So a shard that has all of it is that of the view, and needs no correction. It is
as far as the last time at which the output changed, at least: later ones may not be logged. An
index must be readable from the `as_of` on. Otherwise the dataflow hydrates anew, and the log says
why.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.table_index import table_index
from foreshore.compute.checkpoint.engine import SavingEngine
from foreshore.compute.checkpoint.manifest import Manifest, SavedDataflow, fingerprint
from foreshore.compute.checkpoint.state import Mismatch, Reader, State
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.engine import ERRORS, Dataflow, rows_schema
from foreshore.compute.inputs import Contents
from foreshore.compute.output import IndexRows
from foreshore.compute.protocol import (
    DataflowDescription,
    IndexExport,
    SinkExport,
)
from foreshore.expr.columns import columns_of
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A dataflow with all updates before `upper`, and the inputs' updates from there on."""

    dataflow: Dataflow
    indexes: Mapping[GlobalId, IndexRows]
    errors: Arrangement
    upper: Timestamp
    settled: Timestamp  # all output is before it
    updates: Mapping[GlobalId, pa.Table]


Uppers = Mapping[GlobalId, Timestamp]  # of shards that a server has found when it started
Resume = Callable[[DataflowDescription, Mapping[GlobalId, Contents], Uppers], Resumed | None]


def resume(
    engine: SavingEngine,
    store: CheckpointStore,
    manifest: Manifest,
    description: DataflowDescription,
    contents: Mapping[GlobalId, Contents],
    shards: Uppers,
) -> Resumed | None:
    """Return a dataflow in its saved state, None if it has to be hydrated."""
    saved = manifest.dataflow(description.id)
    if saved is None:
        return None
    try:
        check_fits(saved, description, contents, shards)
        found = _loaded(engine, store, saved, description, contents)
        logger.info("a dataflow is resumed", extra={"dataflow": description.id})
        return found
    except Mismatch as error:
        extra = {"dataflow": description.id}
        logger.warning("a dataflow is hydrated, not resumed: %s", error, extra=extra)
        return None


def check_fits(
    saved: SavedDataflow,
    description: DataflowDescription,
    contents: Mapping[GlobalId, Contents],
    shards: Uppers,
) -> None:
    """Raise Mismatch unless the dataflow can go on from the saved one with these inputs."""
    if saved.fingerprint != fingerprint(description):
        raise Mismatch("its plan or its exports were changed")
    for id, each in contents.items():
        if each.snapshot.since >= saved.upper:
            since = each.snapshot.since
            raise Mismatch(f"{id} is readable from {since}, the checkpoint is of {saved.upper - 1}")
        if each.snapshot.upper < saved.upper:
            raise Mismatch(f"{id} is known before {each.snapshot.upper}, not {saved.upper}")
    ahead = saved.upper - 1 > description.as_of
    for export in description.exports:
        if isinstance(export, IndexExport) and saved.exact_from > description.as_of:
            raise Mismatch(f"{export.id} is exact from {saved.exact_from}")
        if isinstance(export, SinkExport) and export.shard in shards:
            upper = shards[export.shard]
            if upper < saved.settled or upper <= description.as_of:
                raise Mismatch(f"{export.id} has not all rows of the checkpoint")
        elif ahead and not isinstance(export, IndexExport):
            raise Mismatch(f"{export.id} is not as far as the checkpoint")


def _loaded(
    engine: SavingEngine,
    store: CheckpointStore,
    saved: SavedDataflow,
    description: DataflowDescription,
    contents: Mapping[GlobalId, Contents],
) -> Resumed:
    reader = Reader(store.read(saved.state))
    upper = saved.upper
    as_of = upper - 1
    at = msgspec.structs.replace(description, as_of=as_of)
    dataflow = engine.load(at, reader.part("dataflow"))
    try:
        columns = columns_of(description.relation)
        indexes: dict[GlobalId, IndexRows] = {}
        for export in description.exports:
            if isinstance(export, IndexExport):
                rows = dataflow.index(export, as_of)
                rows = rows or table_index(export.id, columns, export.key, as_of)
                assert isinstance(rows, State)
                rows.load(reader.part("indexes").part(export.id))
                rows.advance(upper)
                if rows.since > description.as_of:
                    raise Mismatch(f"index {export.id} is readable from {rows.since}")
                indexes[export.id] = rows
        errors = Arrangement(description.id, rows_schema(ERRORS), (), lambda _: [], as_of)
        errors.load(reader.part("errors"))
        errors.advance(upper)
        if errors.since > (description.as_of if indexes else max(as_of, description.as_of)):
            raise Mismatch(f"its errors are readable from {errors.since}")
        reader.check_all_read()
        parts = {id: each.after(as_of) for id, each in contents.items()}
    except BaseException:
        dataflow.close()
        raise
    updates = {id: pa.concat_tables(tables) for id, tables in parts.items() if tables}
    return Resumed(dataflow, indexes, errors, upper, saved.settled, updates)
