"""Queries over the rows under keys of indexes, such as aggregates and joins of look-ups.

    SELECT count(*), sum(x) FROM v WHERE k = 1                       v: rows with k = 1
    SELECT * FROM v JOIN w ON w.b = v.a WHERE v.k = 1                then w: b = the values of a

The steps are planned as those of key look-ups are (`restrict.py`). Their rows come from the mirrors
of the indexes, or from the cluster that maintains them; those of tables by their own keys come from
key indexes. The query is computed over these rows in this process. If keys or rows are many, the
engine of the cluster computes it instead.
"""

import pyarrow as pa

from foreshore.adapter.plans.access_path import IndexLookups
from foreshore.adapter.read.bound.bind import BoundPeek, Given
from foreshore.adapter.read.bound.cluster_choice import asked_of_cluster
from foreshore.adapter.read.keys.key_lookup import bound_keys, rows_by_key
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.pinned_replica import pinned_replica
from foreshore.adapter.statement.result import all_rows
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.keys.bound_keys import KeyColumns, are_too_many
from foreshore.compute.keys.layout import MANY
from foreshore.datum import from_array
from foreshore.expr.ir import Finishing, Get, Literal
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeyStep
from foreshore.types import SqlType

MOST_ROWS = 10_000  # under the keys of one step; beyond them the engine has less to do


async def look_up_indexes(
    context: StatementContext, bound: BoundPeek, path: IndexLookups
) -> Given | None:
    """Return the rows of each step; None if keys or rows are too many, or a time is not known."""
    given = dict(bound.given)
    for step in path.steps:
        index = path.index_of(step)
        found = (
            await rows_by_key(context, bound, step, given)
            if index is None
            else await _rows_of_index(context, bound, step, path.gets[step.table], index, given)
        )
        if found is None:
            return None
        given[step.rows] = pa.Table.from_batches([found])
    return given


async def _rows_of_index(
    context: StatementContext,
    bound: BoundPeek,
    step: KeyStep,
    get: Get,
    index: GlobalId,
    given: Given,
) -> pa.RecordBatch | None:
    """Return the rows of a step in an index at the time of the read."""
    if are_too_many(step.keys, bound.bindings):
        return None
    types = [get.columns[i].type for i in step.columns]
    keys = await bound_keys(context, bound, step, types, given)
    if len(keys[0]) > MANY:
        return None
    everything = Finishing((), MOST_ROWS + 1, 0, tuple(range(len(get.columns))))
    request = PeekRequest(
        bound.time, get, everything, index, _literals(keys, types), replica=pinned_replica(context)
    )
    context.ran(f"Read of index {index}, {len(keys[0])} keys")
    rows = await all_rows(await asked_of_cluster(context, request))
    return rows if rows.num_rows <= MOST_ROWS else None


def _literals(columns: KeyColumns, types: list[SqlType]) -> tuple[tuple[Literal, ...], ...]:
    """Return the keys in columns as literals."""
    data = [from_array(column, type) for column, type in zip(columns, types, strict=True)]
    return tuple(
        tuple(Literal(value, type) for value, type in zip(key, types, strict=True))
        for key in zip(*data, strict=True)
    )
