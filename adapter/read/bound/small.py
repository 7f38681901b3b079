"""Queries over few rows, evaluated in this process: an engine would take longer to begin."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.read.bound.bind import BoundPeek
from foreshore.adapter.read.bound.cluster_choice import answering_cluster, replanned_if_dropped
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.pinned_replica import pinned_replica
from foreshore.compute.engine import Cancellation, rows_schema
from foreshore.compute.finish import finished_parts
from foreshore.compute.linear import flat
from foreshore.compute.local.small.evaluate import (
    evaluate_small,
    is_known_small_plan,
    is_small_plan,
)
from foreshore.compute.local.small.rows import NotSmall, SmallRows, consolidated
from foreshore.compute.local.small.verdicts import Verdicts
from foreshore.compute.result import Result, collected
from foreshore.errors import TableAltered
from foreshore.expr.cost import is_light
from foreshore.expr.ir import IN_STEP, FlatMap, Get, Join, Literal, Relation
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.storage.decoded_files import DecodedFiles, TooLong
from foreshore.storage.snapshot import Snapshot
from foreshore.types import arrow_type
from foreshore.update import Timestamp

FEW_ROWS = 10_000
AT_ONCE = 200  # rows that are evaluated on the event loop
FEW_BYTES = 4 << 20  # of all inputs
SHORT = 1 << 16  # bytes that are evaluated on the event loop

T = TypeVar("T")

_VERDICTS = Verdicts()


async def small_result(context: StatementContext, bound: BoundPeek) -> Result | None:
    """Return the finished rows of a plan over few stored rows, None for any other plan.

    Raises TableAltered if an input was dropped meanwhile.
    """
    tables, block, time = context.tables, bound.block, bound.time
    stored = block.sources()
    if (
        block.recursions
        or bound.given
        or not stored <= tables.capabilities.keys()
        or not _is_small_plan(context, bound)
        or pinned_replica(context) is not None
    ):
        return None
    answering_cluster(context)
    with replanned_if_dropped(context, stored):
        for id in stored:
            await context.times.wait_readable(id, time)
    await context.views.compute.maintained.check_errors(stored, time)
    if not stored <= tables.capabilities.keys():
        raise TableAltered()
    capabilities = [tables.capabilities[id][0] for id in stored]
    snapshots = [tables.storage.snapshot(each, time) for each in capabilities]
    cancellation = Cancellation()

    async def evaluated() -> Result | None:
        try:
            if not _are_small(snapshots):
                return None
            return await blocking.run(
                context.engines.executor,
                _evaluate, bound, snapshots, context.engines.decoded, cancellation,
            )  # fmt: skip
        except (NotSmall, TooLong):
            return None
        finally:
            for snapshot in snapshots:
                snapshot.release()

    return await _until_ended(evaluated(), cancellation)


async def _until_ended(work: Coroutine[None, None, T], cancellation: Cancellation) -> T:
    """Return what `work` returns; if that is not awaited any longer, cancel it and let it end."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancellation.cancel()
        raise


async def small_over(context: StatementContext, bound: BoundPeek) -> pa.Table | None:
    """Return the rows, with `__diff`, over the few rows given to `bound`, which are all.

    None if they are many, or the plan is not known here.
    """
    count = sum(rows.num_rows for rows in bound.given.values())
    relation = bound.block.relation
    if count > FEW_ROWS or bound.block.recursions or not _is_small_plan(context, bound):
        return None

    cancellation = Cancellation()

    def evaluate() -> pa.Table:
        return evaluate_small(
            relation, lambda get: _single(bound.given[get.id], get), cancellation.check
        )

    try:
        if _is_done_at_once(relation, bound):
            return evaluate()
        work = blocking.run(context.engines.executor, evaluate)
        return await _until_ended(work, cancellation)
    except NotSmall:
        return None


def _is_small_plan(context: StatementContext, bound: BoundPeek) -> bool:
    relation = bound.block.relation
    if bound.has_long_values:
        return is_small_plan(relation)
    if bound.unbound is None:
        return is_known_small_plan(relation)
    return _VERDICTS.is_small(bound.unbound, context.args, relation)


def _is_done_at_once(relation: Relation, bound: BoundPeek) -> bool:
    """Whether a plan over given rows is evaluated on the event loop."""
    pairs = 1
    for node in walk_relations(relation):
        if isinstance(node, Get):
            pairs *= max(bound.given[node.id].num_rows, 1)
        if isinstance(node, FlatMap):
            elements = _elements(node)
            if elements is None:
                return False
            pairs *= max(elements, 1)
        if not all(map(is_light, scalars_of(node))):
            return False
    size: int = sum(rows.nbytes for rows in bound.given.values())
    return pairs <= AT_ONCE and size <= SHORT


def _elements(node: FlatMap) -> int | None:
    """Return how many rows a FlatMap makes of arrays that are literals; None for any other."""
    arrays = node.args if node.function in (IN_STEP, "unnest(anyarray)") else ()
    literals = [each.value for each in arrays if isinstance(each, Literal)]
    if node.input != Join(()) or not arrays or len(literals) < len(arrays):
        return None
    return max(0 if each is None else len(each) for each in literals)


def _single(rows: pa.Table, get: Get) -> SmallRows:
    """Return given rows, each of which is there once."""
    columns = tuple(
        flat(rows.column(i)).cast(arrow_type(column.type)) for i, column in enumerate(get.columns)
    )
    return SmallRows(columns, np.ones(rows.num_rows, np.int64))


def _are_small(snapshots: Sequence[Snapshot]) -> bool:
    files = [file for snapshot in snapshots for file in snapshot.files]
    tails = [table for snapshot in snapshots for table in snapshot.tail]
    rows = sum(file.rows for file in files) + sum(table.num_rows for table in tails)
    size: int = sum(file.bytes for file in files) + sum(table.nbytes for table in tails)
    return rows <= FEW_ROWS and size <= FEW_BYTES


def _evaluate(
    bound: BoundPeek,
    snapshots: Sequence[Snapshot],
    decoded: DecodedFiles,
    cancellation: Cancellation,
) -> Result:
    """Return the finished rows; on a thread."""
    rows: Mapping[GlobalId, pa.Table] = {s.id: _updates(s, decoded) for s in snapshots}
    found = evaluate_small(
        bound.block.relation,
        lambda get: _rows_at(rows[get.id], get, bound.time),
        cancellation.check,
    )
    return collected(finished_parts([found], bound.finishing))


async def stored_rows(
    context: StatementContext, table: GlobalId, time: Timestamp
) -> pa.RecordBatch | None:
    """Return the rows of a stored table at a time; None if they are not few."""
    tables = context.tables
    planned = context.names.catalog.planned.get(table)
    await context.times.wait_readable(table, time)
    if planned is None or table not in tables.capabilities:
        raise TableAltered()
    columns, (read, *_) = planned.desc.columns, tables.capabilities[table]
    snapshot = tables.storage.snapshot(read, time)

    def rows_at() -> pa.RecordBatch:
        rows = _rows_at(_updates(snapshot, context.engines.decoded), Get(table, columns), time)
        places = pa.array(np.repeat(np.arange(rows.count), rows.diffs))
        arrays = [column.take(places) for column in rows.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=rows_schema(columns))

    async def found() -> pa.RecordBatch | None:
        try:
            if not _are_small([snapshot]):
                return None
            return await blocking.run(context.engines.executor, rows_at)
        except (NotSmall, TooLong):
            return None
        finally:
            snapshot.release()

    return await _until_ended(found(), Cancellation())


def _updates(snapshot: Snapshot, decoded: DecodedFiles) -> pa.Table:
    """Return all updates of a snapshot, in columns by position."""
    with ExitStack() as stack:
        paths = stack.enter_context(snapshot.paths())
        parts = [
            decoded.table(file.key, path) for file, path in zip(snapshot.files, paths, strict=True)
        ]
    parts += snapshot.tail
    width = len(snapshot.schema) + 2
    names = [f"c{i}" for i in range(width)]
    if not parts:
        return pa.table([pa.nulls(0)] * width, names=names)
    return pa.concat_tables(
        [part.rename_columns(names) for part in parts], promote_options="permissive"
    )


def _rows_at(updates: pa.Table, get: Get, time: int) -> SmallRows:
    """Return the rows of a collection at a time."""
    width = len(get.columns)
    times = updates.column(width)
    if updates.num_rows and pc.max(times).as_py() > time:
        updates = updates.filter(pc.less_equal(times, time))
    columns = tuple(
        flat(updates.column(i)).cast(arrow_type(column.type))
        for i, column in enumerate(get.columns)
    )
    diffs = flat(updates.column(width + 1)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    rows = SmallRows(columns, np.asarray(diffs))
    return consolidated(rows) if (rows.diffs < 1).any() else rows
