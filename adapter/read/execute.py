"""Execute: the rows of a bound plan as of its time, by its access path."""

from collections.abc import Iterator
from functools import partial
from typing import assert_never

import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.calls.side_effects import results_by_row
from foreshore.adapter.plans.access_path import (
    Bulk,
    Constant,
    IndexLookups,
    IndexRead,
    InProcess,
    KeyLookup,
)
from foreshore.adapter.read.bound.bind import BoundPeek, counted_each, timestamp_of
from foreshore.adapter.read.bound.cluster_choice import asked_of_cluster, index_of
from foreshore.adapter.read.bound.in_process import result_in_process, rows_in_process
from foreshore.adapter.read.bound.small import small_over, small_result
from foreshore.adapter.read.keys.key_lookup import is_local, look_up, rows_over
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.pinned_replica import pinned_replica
from foreshore.adapter.statement.result import BatchSource, RowSource, all_rows, finished
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.controller.query_progress import progress_told
from foreshore.compute.engine import Cancellation, check_memory, output_schema, rows_schema
from foreshore.compute.finish import finish, finished_parts, streamed_parts
from foreshore.compute.inputs import conform
from foreshore.compute.keys.bound_keys import literal_keys
from foreshore.compute.keys.bound_spans import bound_span
from foreshore.compute.local.linear import (
    Collections,
    evaluate_linear,
    literal_rows,
)
from foreshore.compute.local.stream import StreamSource, gathered
from foreshore.compute.local.streamed import (
    Pace,
    can_stream,
    comes_in_order,
    streamed,
)
from foreshore.compute.protocol import BulkChoice
from foreshore.compute.result import LARGE_RESULT, Result, collected, empty_batch
from foreshore.errors import InvalidParameterValue, UndefinedObject
from foreshore.expr.ir import Finishing, Relation
from foreshore.extras import require_spark
from foreshore.memory import give_back
from foreshore.rows import counted
from foreshore.session_variables import Variables
from foreshore.sizes import bytes_of
from foreshore.sql.plan import Changes
from foreshore.types import ColumnType
from foreshore.update import Timestamp


def _bulk_choice(variables: Variables, pid: int, engine: str | None) -> BulkChoice:
    """Return which engine the statement, or else the session, wants for a large query."""
    threshold = variables["bulk_threshold"]
    chosen = engine or variables["bulk_engine"]
    if chosen == "spark":
        require_spark("a query ON spark" if engine else "bulk_engine = 'spark'")
    return BulkChoice(
        chosen,
        0 if threshold == "0" else bytes_of(threshold),
        f"query of session {pid}",
    )


async def execute(context: StatementContext, bound: BoundPeek) -> Result | None:
    """Return the finished rows, with side effects called for each of them if the query says so.

    None if a key look-up would find too many rows.
    """
    result = await _finished_rows(context, bound)
    query = bound.plan.query
    if result is None or not query.row_outputs:
        return result
    rows = counted(await all_rows(result))
    bindings = context.bindings(context.times.oracle.read_ts())
    called = await results_by_row(context, rows, query.row_outputs, bindings)
    shown = [*range(len(query.desc.columns)), called.num_columns - 1]
    return await finished(called.select(shown), None)


async def open_source(context: StatementContext, bound: BoundPeek) -> RowSource | None:
    """Return the finished rows, as `execute` does, computed as they are taken where that can be."""
    if not _can_be_streamed(bound):
        result = await execute(context, bound)
        return None if result is None else BatchSource(result)
    context.ran("Constant, in this process")
    executor, memory = context.engines.executor, context.variables.settings.most_memory
    source = await StreamSource(partial(_stream, bound), executor, memory).begun()
    only = source.only_batch
    return source if only is None else BatchSource(Result.of(only))


def _can_be_streamed(bound: BoundPeek) -> bool:
    """Whether the rows may be many, and each can be computed without the others."""
    query, relation = bound.plan.query, bound.block.relation
    return (
        isinstance(bound.path, Constant)
        and comes_in_order(relation, bound.finishing.order_by)
        and not query.row_outputs
        and not bound.is_light
        and can_stream(relation)
    )


def _stream(bound: BoundPeek, pace: Pace, cancellation: Cancellation) -> Iterator[pa.RecordBatch]:
    """Return the finished rows of a relation that can be streamed."""
    given = counted_each(bound.given)
    parts = streamed(bound.block.relation, given, pace, cancellation.check)
    return streamed_parts(parts, replace(bound.finishing, order_by=()))


async def _finished_rows(context: StatementContext, bound: BoundPeek) -> Result | None:
    """Return the finished rows by the access path; None as `execute` does."""
    time, finishing = bound.time, bound.finishing
    match bound.path:
        case Constant():
            context.ran("Constant, in this process")
            rows = literal_rows(bound.block.relation)
            if rows is not None:
                return Result.of(finish(rows, finishing))
            return await _finished_constant(context, bound)
        case KeyLookup() | IndexLookups() as path:
            return await _by_key(context, bound, path)
        case InProcess():
            context.ran("Evaluation, in this process")
            return await result_in_process(context, bound)
        case IndexRead(index=index, keys=keys, relation=relation, range=range):
            literals = None if keys is None else literal_keys(keys, bound.bindings)
            span = None if range is None else bound_span(range, bound.bindings)
            if literals == () or (range is not None and span is None):
                return Result.of(empty_batch(rows_schema(bound.plan.query.desc.columns)))
            replica = pinned_replica(context)
            request = PeekRequest(
                time,
                relation,
                finishing,
                index,
                literals,
                span,
                replica=replica,
                is_repeated=not bound.plan.is_open,
                memory=context.variables.settings.most_memory,
            )
            part = "whole" if span is None else "in part"
            how = part if literals is None else f"{len(literals)} keys"
            context.ran(f"Read of index {index}, {how}, on cluster {context.cluster}")
            return await asked_of_cluster(context, request)
        case Bulk(relation=relation):
            engine = bound.plan.query.engine
            small = await small_result(context, bound) if engine is None else None
            if small is not None:
                context.ran("Evaluation of few stored rows, in this process")
                return small
            context.ran(f"Evaluation by the engine of cluster {context.cluster}")
            shards = bound.plan.shards
            indexes = {id: index for id in shards if (index := index_of(context, id)) != id}
            request = PeekRequest(
                time,
                relation,
                finishing,
                imports=tuple(sorted(shards - indexes.keys())),
                indexes=indexes,
                tables=bound.given,
                replica=pinned_replica(context),
                bulk=_bulk_choice(context.variables, context.pid, engine),
                memory=context.variables.settings.most_memory,
            )
            stages = context.views.compute.clusters.stages
            with progress_told(request.bulk, stages, partial(context.notice, now=True)):
                return await asked_of_cluster(context, request)
        case path:
            assert_never(path)


async def computed(context: StatementContext, bound: BoundPeek) -> pa.Table:
    """Return the rows of a plan that no key look-up answers, as `execute_unfinished` does."""
    rows = await execute_unfinished(context, bound)
    assert rows is not None, bound.path
    return rows


async def execute_unfinished(context: StatementContext, bound: BoundPeek) -> pa.Table | None:
    """Return the rows of a plan without ORDER BY and LIMIT, in any order and with `__diff`.

    None as `execute` does.
    """
    match bound.path:
        case Constant():
            return await _constant(context, bound)
        case InProcess():
            return await rows_in_process(context, bound)
        case KeyLookup() | IndexLookups() as path:
            given = await look_up(context, bound, path)
            return None if given is None else await rows_over(context, replace(bound, given=given))
        case _:
            result = await _finished_rows(context, bound)
            if result is None:
                return None
            check_memory(result.size_bytes, context.variables.settings.most_memory)
            return counted(await all_rows(result))


async def _by_key(
    context: StatementContext, bound: BoundPeek, path: KeyLookup | IndexLookups
) -> Result | None:
    """Return the finished rows of a relation over the rows under keys."""
    given = await look_up(context, bound, path)
    if given is None:
        context.ran("Key look-up, given up because it finds too many rows")
        return None
    if context.trace is not None:
        found = sum(rows.num_rows for rows in given.values())
        context.ran(f"Key look-up, in this process, of {found} rows")
    bound = replace(bound, given=given)
    if is_local(bound):
        return await finished(await rows_over(context, bound), bound.finishing)
    rows = await small_over(context, bound)
    if rows is not None:
        return await finished(rows, bound.finishing)
    return await result_in_process(context, bound)


async def _finished_constant(context: StatementContext, bound: BoundPeek) -> Result:
    """Return the finished rows of a relation that the kernels compute.

    Many are finished on the thread that has computed them: only there the allocator gives their
    memory back, which else would be kept for as long as the client reads. What may be too many to
    be in memory is left to an engine, if it is so.
    """
    relation, finishing = bound.block.relation, bound.finishing
    if bound.is_light or context.variables.settings.most_memory is not None:
        return await finished(await _constant(context, bound), finishing)
    executor, given = context.engines.executor, counted_each(bound.given)
    if not can_stream(relation):
        return await blocking.run(executor, _evaluated_and_finished, relation, given, finishing)
    scratch = context.tables.storage.scratch
    rows = await gathered(relation, given, executor, scratch, LARGE_RESULT)
    if rows is None:
        return await result_in_process(context, bound)
    if comes_in_order(relation, finishing.order_by):
        finishing = replace(finishing, order_by=())
    return await blocking.run(executor, _collected, rows, finishing)


def _evaluated_and_finished(relation: Relation, given: Collections, finishing: Finishing) -> Result:
    return _collected(evaluate_linear(relation, given), finishing)


def _collected(rows: pa.Table, finishing: Finishing) -> Result:
    result = collected(finished_parts([rows], finishing))
    if result.spilled_bytes > LARGE_RESULT:
        give_back()
    return result


async def _constant(context: StatementContext, bound: BoundPeek) -> pa.Table:
    """Return the rows, with `__diff`, of a relation that the kernels compute."""
    relation, executor = bound.block.relation, context.engines.executor
    given = counted_each(bound.given)
    if bound.is_light:
        return evaluate_linear(relation, given)
    if context.variables.settings.most_memory is not None:
        return await rows_in_process(context, bound)
    if not can_stream(relation):
        return await blocking.run(executor, evaluate_linear, relation, given)
    rows = await gathered(relation, given, executor, context.tables.storage.scratch)
    assert rows is not None
    return rows


# --- CHANGES(...) --------------------------------------------------------------------------


async def changes(context: StatementContext, plan: Changes, time: Timestamp) -> pa.Table:
    """Return the changes for a query that reads at `time`: consolidated, in the plan's columns.

    Raises InvalidParameterValue for bounds outside of the readable times.
    """
    times = context.times
    await times.wait_readable(plan.of, time)
    through = time if plan.through is None else timestamp_of(context, plan.through, time)
    await context.views.compute.maintained.errors_known([plan.of], min(through, time))
    if plan.of not in times.holds.collections:
        raise UndefinedObject(f'"{plan.name}" was dropped')
    since, altered = times.since(plan.of), context.names.state.altered(plan.of)
    change = context.transaction.catalog
    if change is not None and plan.of in change.constrained_since:
        since = altered = max(since, change.constrained_since[plan.of])
    after = since if plan.after is None else timestamp_of(context, plan.after, time)
    ends = f'"{plan.name}" was altered at {since}: its history before is not kept.'
    if after < since or through > time:
        raise InvalidParameterValue(
            f'the changes of "{plan.name}" after {after} through {through} cannot be read',
            detail=f"They can be read after {since} through {time}."
            + (f" {ends}" if after < since == altered else ""),
        )
    if plan.after is None and since == altered:
        context.notice(ends, hint="CHANGES tells what came after that.")
    if after > through:
        raise InvalidParameterValue(f"CHANGES after {after} cannot end at {through}")
    await context.views.compute.maintained.check_errors([plan.of], after, through)
    read, _ = context.tables.capabilities_of(plan.of)
    found = await context.tables.storage.changes(read, after, through)
    return await blocking.run(None, _rows, found, plan.columns)


def _rows(updates: pa.Table, columns: tuple[ColumnType, ...]) -> pa.Table:
    own = columns[2:]
    updates = conform(updates, output_schema(own))
    if updates.num_rows > 1 and own:
        updates = consolidate(updates, rows_schema(own), 0)
    *body, times, diffs = updates.columns
    return pa.Table.from_arrays([times, diffs, *body], schema=rows_schema(columns))
