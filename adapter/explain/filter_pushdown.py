"""EXPLAIN FILTER PUSHDOWN: what a plan's filters leave to read of each collection's files.

Parts are row groups of batch files. A part is selected if its statistics do not exclude that it has
a row that some filter takes; updates that are in no file yet are always read, and not counted.
"""

from collections.abc import Sequence
from functools import partial

import pyarrow.parquet as pq

from foreshore import blocking
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.compute.engine import Input
from foreshore.compute.finish import batch_of_rows
from foreshore.compute.hydrate.volume import filters_of
from foreshore.expr.explain import NameOf
from foreshore.expr.ir import Relation, Scalar
from foreshore.sql.plan import PUSHDOWN_DESC
from foreshore.storage.selection import groups_with_rows
from foreshore.storage.snapshot import Snapshot

Counts = tuple[int, int, int, int]  # bytes, selected bytes, parts, selected parts


async def explain_pushdown(
    context: StatementContext, relation: Relation, name_of: NameOf
) -> Selected:
    """Return a row for each stored collection that the plan reads."""
    tables = context.tables
    time = context.times.oracle.read_ts()
    rows = []
    for id, filters in sorted(filters_of(relation).items()):
        if id not in tables.capabilities:
            continue
        await context.times.wait_readable(id, time)
        read = tables.capabilities[id][0]
        with tables.storage.snapshot(read, time) as snapshot:
            count = partial(_count, snapshot, filters)
            counts = await blocking.run(context.engines.executor, count)
        rows.append((name_of(id), *counts))
    batch = batch_of_rows(rows, PUSHDOWN_DESC.columns)
    return Selected(PUSHDOWN_DESC, BatchSource(batch), "EXPLAIN")


def _count(snapshot: Snapshot, filters: Sequence[Sequence[Scalar]]) -> Counts:
    names = Input(snapshot.schema).file_names
    total_bytes = selected_bytes = parts = selected_parts = 0
    with snapshot.paths() as paths:
        for path in paths:
            metadata = pq.read_metadata(path)
            taken = {
                group
                for predicates in filters
                for group in groups_with_rows(metadata, names, predicates, snapshot.as_of)
            }
            for group in range(metadata.num_row_groups):
                size = _stored(metadata.row_group(group))
                total_bytes += size
                selected_bytes += size * (group in taken)
            parts += metadata.num_row_groups
            selected_parts += len(taken)
    return total_bytes, selected_bytes, parts, selected_parts


def _stored(group: pq.RowGroupMetaData) -> int:
    return sum(group.column(leaf).total_compressed_size for leaf in range(group.num_columns))
