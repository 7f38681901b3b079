"""Publish a table or a materialized view as a Delta or Iceberg table over its batch files."""

import asyncio
from pathlib import Path

from foreshore import blocking
from foreshore.adapter.read.bound.timestamp import read_time
from foreshore.adapter.statement.context import StatementContext
from foreshore.expr.ir import Get
from foreshore.sql.plan import CopyToFiles
from foreshore.storage.lake.linking import are_as_in_files, inserted, only_inserts
from foreshore.storage.lake.tables import TABLES
from foreshore.storage.lake.writing import Export
from foreshore.storage.snapshot import Snapshot


def may_publish(context: StatementContext, plan: CopyToFiles) -> bool:
    """Whether the rows are those of a collection, in types that are the same in its files."""
    relation = plan.source.query.relation
    return (
        plan.files.format in TABLES
        and isinstance(relation, Get)
        and relation.id == plan.relation
        and relation.id in context.tables.capabilities
        and not context.transaction.reads_own_writes((relation.id,))
        and are_as_in_files([column.type for column in plan.source.desc.columns])
    )


async def publish(context: StatementContext, plan: CopyToFiles, export: Export) -> int | None:
    """Put a collection's files into an export, and its newest rows; return how many rows.

    None if its files are not such that they may be used, or are on another disk: nothing is done.
    """
    id = plan.relation
    assert id is not None
    time = read_time(context, [id], plan.source.as_of)
    await context.times.wait_readable(id, time)
    await context.views.compute.maintained.check_errors([id], time)
    with context.tables.storage.snapshot(context.tables.capabilities[id][0], time) as snapshot:
        threads = context.process.copies.threads(plan.files)
        linking = asyncio.ensure_future(blocking.run(threads, _linked, snapshot, time, export))
        return await asyncio.shield(linking)


def _linked(snapshot: Snapshot, time: int, export: Export) -> int | None:
    rows = inserted(snapshot.tail, time)
    if rows is None:
        return None
    with snapshot.paths() as paths:
        files = [Path(path) for path in paths]
        if not files or not only_inserts(files, time):
            return None
        if not export.link(files, [file.rows for file in snapshot.files]):
            return None
    writer = export.writer()
    for batch in rows:
        writer.write(batch)
    writer.close()
    written: int = sum(batch.num_rows for batch in rows)
    return sum(file.rows for file in snapshot.files) + written
